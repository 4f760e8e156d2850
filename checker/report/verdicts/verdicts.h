// What a program claims of itself, claim by claim, and what became of each: gradients of its
// parameters, types that it asserts, outputs.
#pragma once

#include "checker/report/report.h"

#include <string>
#include <vector>

namespace spmd::checker {

struct Verdict {
  // Open: nothing was found wrong, and not everything is known that it depends on.
  enum class Form : uint8_t { Holds, Refuted, Open };
  Form form = Form::Holds;
  Place place;
  std::string claim;                   // `gradient of 0.bias`
  const Diagnostic *finding = nullptr; // Refuted: by it; its severity may be that of a warning
  std::string why;                     // Open: `unknown on dp`
};
// In this order: parameters that the program trains or whose gradient it states something of, one
// verdict each; `assert_type` and `from_local`; outputs. Each in the order of the program.
std::vector<Verdict> verdicts_of(const Report &report);

} // namespace spmd::checker
