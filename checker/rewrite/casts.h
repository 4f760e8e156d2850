// LTensor marks invariant operands varying without a word wherever they meet what varies. The walk
// sees them so and says it (`implicit-cast`); whoever differentiates or runs the program needs the
// casts in it.
#pragma once

#include "checker/check.h"

namespace spmd::checker {

class WalkState;

// True if the operands of the current instruction are seen otherwise now, by casts that make it
// right.
bool cast_implicitly(WalkState &state, ir::InstId id, const rules::Application &app,
                     const rules::Outcome &outcome);

// Puts a `mark_varying` before each op that casts. Functions in which there is one are inlined with
// all others. True if there was any.
bool write_casts(ir::Program &program, const CheckOptions &options = {});

} // namespace spmd::checker
