// Collectives of a recorded forward that autograd does not see, so that no gradient comes back
// through them.
#pragma once

#include "checker/check.h"

namespace spmd::checker {

// One finding for each whose operand carries a gradient and whose result is a part of a loss.
void judge_unseen_collectives(ir::Program &program, CheckResult &result);

} // namespace spmd::checker
