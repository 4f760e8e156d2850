// The violation of norms over lists of gradients, some spread and some not (rules/README.md).
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

struct NormOvercount {
  OperandIndex operand;
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const NormOvercount &) const = default;
  static const DiagnosticInfo info;
};

struct NormUndercount {
  OperandIndex operand;
  ir::AxisSet axes;
  void fields(auto &&visit) const { visit("operand", operand), visit("axes", axes); }
  bool operator==(const NormUndercount &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
