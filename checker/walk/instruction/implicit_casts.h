// In the LTensor dialect an invariant operand beside a varying one is cast to varying. Here: the
// cast in the walk, reported as `implicit-cast`; rewrite/casts.h: the cast as an instruction.
// Internal to the checker.
#pragma once

#include "checker/walk/state.h"

namespace spmd::checker {

// True if the operands of the current instruction are seen otherwise now, by casts that make it
// right.
bool cast_implicitly(WalkState &state, ir::InstId id, const rules::Application &app,
                     const rules::Outcome &outcome);

} // namespace spmd::checker
