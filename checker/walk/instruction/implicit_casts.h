// LTensor marks invariant operands varying without a word wherever they meet what varies. The walk
// sees them so and says it (`implicit-cast`); rewrite/casts.h writes the casts out. Internal to the
// checker.
#pragma once

#include "checker/walk/state.h"

namespace spmd::checker {

// True if the operands of the current instruction are seen otherwise now, by casts that make it
// right.
bool cast_implicitly(WalkState &state, ir::InstId id, const rules::Application &app,
                     const rules::Outcome &outcome);

} // namespace spmd::checker
