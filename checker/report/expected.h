// What a program says should be found in it (`expect`), held against what is.
#pragma once

#include "checker/check.h"

#include <string>
#include <vector>

namespace spmd::checker {

struct ExpectationOutcome {
  Place place;
  std::string subject;    // `error[no-spec] on tp`, or the value `%3` whose type is expected
  std::string difference; // `error[no-spec] on tp was expected`; empty: it is as expected
};
// Those that the program states, in its order, then findings other than infos that it does not.
std::vector<ExpectationOutcome> outcomes_of_expectations(const ir::Program &program,
                                                         const CheckResult &result);

} // namespace spmd::checker
