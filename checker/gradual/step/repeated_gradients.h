// Gradients that the step adds up itself, such as those of micro-batches, or of the copies of a
// tied weight on two stages of a pipeline.
#pragma once

#include "checker/check.h"

namespace spmd::checker {

// Sums in which what one backward has made comes more often than what another one has: a sum that
// was added to goes into the next one. Clears CheckResult::proved of the outputs concerned.
void judge_repeated_gradients(ir::Program &program, CheckResult &result);

} // namespace spmd::checker
