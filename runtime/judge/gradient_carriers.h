// Which values of a recorded step are the gradient of a parameter on its way from the backward to
// the optimizer: moved, summed over ranks, multiplied by numbers.
#pragma once

#include "runtime/reference/run.h"

namespace spmd::runtime {

struct SteppedGradient {
  ir::ValueId value, param;
  ir::InstId read; // the write of the optimizer
};

// What writes to parameters and their state read of a gradient, in program order, each once; where
// it is multiplied by what the program computes (clipping), the gradient before that. Only what is
// synchronised: no sum of it is pending, and ranks hold it as they hold the parameter. `pending`:
// of `step`, whose parameter may have a contract that sums it, also what is not, each time that it
// is read.
std::vector<SteppedGradient> stepped_gradients(Reference &reference, const ReferenceRun &run,
                                               bool pending = false);

// The parameter that a value is, or is a move or a cast of; none: it is made of something else.
// `through`: the instructions between, nearest first.
ir::ValueId parameter_behind(Reference &reference, ir::ValueId value,
                             llvm::SmallVectorImpl<ir::InstId> *through = nullptr);

} // namespace spmd::runtime
