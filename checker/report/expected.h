// What a program says should be found in it (`expect`), held against what is.
#pragma once

#include "checker/check.h"

#include <string>
#include <vector>

namespace spmd::checker {

struct Unmet {
  Place place;
  std::string text; // `error[no-spec] on tp was expected`
};
// In the order of the program: what was expected and is not there, then findings other than infos
// that nobody expected.
std::vector<Unmet> unmet_expectations(const ir::Program &program, const CheckResult &result);

} // namespace spmd::checker
