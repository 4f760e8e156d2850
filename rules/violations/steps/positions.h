// The violations of numbers that count the elements of a dimension of which each rank has a block,
// and of random numbers that all ranks draw for one block of it.
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

struct RepeatedPositions {
  OperandIndex operand; // what was counted
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const RepeatedPositions &) const = default;
  static const DiagnosticInfo info;
};

struct RepeatedDraws {
  OperandIndex operand; // what was drawn
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const RepeatedDraws &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
