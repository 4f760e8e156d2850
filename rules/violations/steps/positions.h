// The violation of numbers that count the elements of a dimension of which each rank has a block.
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

} // namespace spmd::rules
