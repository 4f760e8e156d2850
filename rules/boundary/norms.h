// `total_norm` and `clip_norm`: rows of the table of boundary ops.
#pragma once

#include "rules/application.h"

namespace spmd::rules {

// Results are unknown on entry. `axis`: over which the squares are summed; none if absent.
void total_norm(const Application &app, Outcome &out);
// The clipped gradients, one per operand; one result more: the norm stands before them.
void clip_norm(const Application &app, Outcome &out);

} // namespace spmd::rules
