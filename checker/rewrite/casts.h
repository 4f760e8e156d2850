// LTensor marks invariant operands varying without a word wherever they meet what varies. The walk
// sees them so and says it; whoever differentiates or runs the program needs the casts in it.
#pragma once

#include "checker/check.h"

namespace spmd::checker {

// Puts a `mark_varying` before each op that casts. Functions in which there is one are inlined with
// all others. True if there was any.
bool write_casts(ir::Program &program, const CheckOptions &options = {});

} // namespace spmd::checker
