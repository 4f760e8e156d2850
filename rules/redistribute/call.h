// `redistribute %x { to = T }`: typed by its ends, without a plan.
#pragma once

#include "rules/redistribute/request.h"

namespace spmd::rules::redistribute {

// True of a call that states a whole type; else it goes along one axis.
bool states_whole_type(const Application &app);
void apply_whole_type(const Application &app, Outcome &out);

// What the call asks of a planner; none where it is refused, or extents are not known.
std::optional<Request> request_of(const Application &app);
// The axes over which the steps of its plan run.
ir::AxisSet communicated_axes(const Application &app);

// The type that a redistribute states its gradient to have on the way back (`grad`); null if it
// states none.
const ir::Claim *stated_gradient(const Application &app);
// The backward of such a call: from the dual of its result to what it states, from there to the
// dual of its operand. None without a gradient.
struct BackwardRedistribution {
  ir::TypeId from, by, to;
  ir::ShapeId shape; // of the whole tensor
  std::optional<Violation> problem;
};
std::optional<BackwardRedistribution>
backward_redistribution(const Application &app, const TensorInfo &source, const TensorInfo &result);
// Reports where it cannot be; the results are typed.
void judge_stated_gradient(const Application &app, Outcome &out);

} // namespace spmd::rules::redistribute
