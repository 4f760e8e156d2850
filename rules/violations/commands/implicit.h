// What writing out a program brings to light: communication that it leaves implicit. Checking it
// triggers none of these.
#pragma once

#include "rules/violations/diagnostic_info.h"

namespace spmd::rules {

struct ImplicitRedistribute {
  ir::ValueId value;
  std::string operand;               // of the row of the op, by name
  std::string wanted, found;         // types, in the words of the report
  int64_t forward = 0, backward = 0; // bytes, of the busiest rank
  std::string collectives;           // forward, `2 collectives`
  std::string shared;                // `2 operands` that take the same one; empty: one does
  std::string reason;                // the finding that there would be otherwise
  void fields(auto &&visit) const {
    visit("value", value), visit("operand", operand), visit("wanted", wanted),
        visit("found", found), visit("forward", forward), visit("backward", backward);
    visit("collectives", collectives), visit("shared", shared), visit("reason", reason);
  }
  bool operator==(const ImplicitRedistribute &) const = default;
  static const DiagnosticInfo info;
};

} // namespace spmd::rules
