// Gradients of what each rank has of its own and uses for the data of others, as the weights of
// its experts are.
#pragma once

#include "checker/check.h"

namespace spmd::checker {

// Such a gradient comes back through an exchange as the sum over the losses of all ranks. Where
// those of other parameters are averaged over the ranks, it has to be divided by their number, too;
// where they are summed, it must not be. One finding per parameter, a warning: nothing is known
// here but which collectives and numbers a gradient meets on its way to the optimizer.
void judge_expert_gradients(ir::Program &program, CheckResult &result);

} // namespace spmd::checker
