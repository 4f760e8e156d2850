// What the rows of boundary.cc say of an op at the edge of the typed world.
#pragma once

#include "ir/boundary_ops.h"

namespace spmd::rules {

using ir::Boundary;
using ir::boundary_name;
using ir::find_boundary;

// True if the result holds what the first operand holds, be it scaled or seen otherwise.
bool passes_data(Boundary op);
// True if the result is the first operand: only what is claimed of it changes.
bool is_same_data(Boundary op);
// True if results hold no data: states, tokens.
bool holds_no_data(Boundary op);
// True if the result is the state of a generator of random numbers.
bool is_random_state(Boundary op);
// True if what it computes is a norm of its operands, or has been scaled by that.
bool takes_norm(Boundary op);
// True if it writes its first operand.
bool writes_first(Boundary op);
// True if its results can be read when the program has ended.
bool results_outlive_program(Boundary op);
// True if it does something where it has no results.
bool acts(Boundary op);
// True if the gradient of its operand is the same op, with the same attributes, on the gradient of
// its result.
bool is_own_backward(Boundary op);

} // namespace spmd::rules
