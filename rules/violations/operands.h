// Violations seen before an equation is evaluated: claims that are absent or undecided, operands
// and shapes that do not fit the row.
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

struct MissingClaim {
  OperandIndex operand;
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const MissingClaim &) const = default;
  static const DiagnosticInfo info;
};

// `R|I` that neither a gradient contract nor `requires_grad` decides.
struct UndecidedKind {
  ir::ValueId value;
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("value", value), visit("axes", axes); }
  bool operator==(const UndecidedKind &) const = default;
  static const DiagnosticInfo info;
};

struct ShapeMismatch {
  std::string what; // `dimension 1 of operand 0 and dimension 0 of operand 1`, or `the result`
  std::string expected, found;
  ir::AxisSet axes = {}; // that shard the dimension; none where shards are no matter
  void fields(auto &&visit) const {
    visit("what", what), visit("expected", expected), visit("found", found), visit("axes", axes);
  }
  bool operator==(const ShapeMismatch &) const = default;
  static const DiagnosticInfo info;
};

// An operand list that the op's row cannot take: too few, too many, or of another form.
struct OperandMismatch {
  std::string expected, found;
  void fields(auto &&visit) const { visit("expected", expected), visit("found", found); }
  bool operator==(const OperandMismatch &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
