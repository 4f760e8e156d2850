// What a program says should be found in it (`expect`), held against what is.
#pragma once

#include "checker/check.h"

#include <string>
#include <vector>

namespace spmd::checker {

struct Expected {
  Place place;
  std::string claim;                // `error[no-spec] on tp`, `%y is R@tp`
  std::string unmet;                // `error[no-spec] on tp was expected`; empty: it is as expected
  const Finding *finding = nullptr; // that is expected, or that nobody expected
};
// In the order of the program: what it expects, then findings other than infos that nobody
// expected.
std::vector<Expected> held_against_expected(const ir::Program &program, const CheckResult &result);
// Those that are not as expected.
std::vector<Expected> unmet_expectations(const ir::Program &program, const CheckResult &result);

} // namespace spmd::checker
