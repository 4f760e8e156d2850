// Violations of a rank's own rows of a table: an index that does not begin where they do, what is
// added to them although it belongs to others, and a mask that lets more through than they are.
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

struct BlockOffset {
  int64_t rows, found; // of a block; by which the index moves from rank to rank
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("rows", rows), visit("found", found), visit("axes", axes);
  }
  bool operator==(const BlockOffset &) const = default;
  static const DiagnosticInfo info;
};

struct ForeignRows {
  OperandIndex operand; // what is added
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const ForeignRows &) const = default;
  static const DiagnosticInfo info;
};

struct WideMask {
  OperandIndex operand; // what was looked up
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const WideMask &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
