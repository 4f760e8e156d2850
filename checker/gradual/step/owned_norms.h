// Parameters that one rank each updates and hands out to the others, as optimizers do that leave
// whole tensors to their owners, and norms by which such a rank clips.
#pragma once

#include "checker/check.h"

namespace spmd::checker {

// A number that an owner makes of the gradients of several parameters that are all its own, and
// multiplies them with, where other ranks own other parameters: it was not summed over the owners,
// so each of them has another one. One finding per number, where it is made.
void judge_owned_norms(ir::Program &program, CheckResult &result);

} // namespace spmd::checker
