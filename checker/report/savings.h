// Communication that a program could do without: steps that undo each other or are repeated, sums
// and gathers of which a slice alone is kept, calls that could be one, or that could run while
// others compute.
#pragma once

#include "checker/check.h"
#include "checker/fix/text_edits.h"

#include <vector>

namespace spmd::checker {

struct Saving {
  Finding finding;
  Fix fix;
  Rewrite rewrite; // not verified yet
};
// Of the instructions of the main body, in their order.
std::vector<Saving> savings_of(ir::Program &program, const CheckResult &result);

} // namespace spmd::checker
