// The violation of parts of a tensor that ranks go through turn by turn, as micro-batches of a
// pipeline.
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

struct UnlikeParts {
  OperandIndex operand; // that has the parts
  int64_t parts, part;  // how many, and the one in question
  std::string how;      // it enters the result
  ir::AxisSet axes;
  void fields(auto &&visit) const {
    visit("operand", operand), visit("parts", parts), visit("part", part), visit("how", how),
        visit("axes", axes);
  }
  bool operator==(const UnlikeParts &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
