// Programs that contain their backward: which value is the gradient of which, whether it is of the
// dual type, and which forward instruction a backward one belongs to.
#pragma once

#include "checker/check.h"

namespace spmd::checker {

// The axes on which `gradient` is not of the dual type of `value`, both on one mesh. R and I are
// one here: no gradient is asked of a gradient. Undecided, unknown and zero are silent. V without a
// shard may stand for addends that nobody has called so, and on the axes in `local` anything equal
// on all ranks may stand for V.
ir::AxisSet not_dual(const ir::Type &value, const ir::Type &gradient, ir::AxisSet local);

// The dual type on these axes alone, for a sentence.
ir::Type dual_on(const ir::Type &value, ir::AxisSet axes);

// True if a collective over the axis, in the same phase, made the value equal on all ranks: it is
// no addend by itself.
bool equal_by_collective(const ir::Program &program, const CheckResult &result, ir::ValueId value,
                         ir::AxisId axis);

// The forward instruction that a backward one belongs to: as it states, else the one that takes the
// value whose gradient it makes, a transition over the axes first. None if nothing tells.
ir::InstId forward_of(const ir::Program &program, ir::InstId backward, ir::AxisSet axes);

// The parameter whose marked gradient these values are made of, by way of values that are V or P on
// all the axes: `param` if it is valid, else the nearest one; none if there is none near.
ir::ValueId pending_gradient(const ir::Program &program, const CheckResult &result,
                             llvm::ArrayRef<ir::ValueId> values, ir::ValueId param,
                             ir::AxisSet axes);

} // namespace spmd::checker
