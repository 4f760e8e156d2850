// Several backward passes that begin at one line of a step: micro-batches, whose gradients are
// added up.
#pragma once

#include "checker/check.h"

namespace spmd::checker {

// Means of micro-batches that nobody divides by their number, and gradients of micro-batches that
// the step throws away. One finding for the passes of one line, where the first of them begins.
void judge_accumulation(ir::Program &program, CheckResult &result);

} // namespace spmd::checker
