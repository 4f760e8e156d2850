// Whether a plan is the cheapest, by looking at everything.
#pragma once

#include "rules/redistribute/request.h"

namespace spmd::rules::redistribute {

enum class Proof : uint8_t { Cheapest, NotCheapest, TooManyStates };

// Visits every state that can be reached under the cap of the plan, without a bound that leaves any
// out, and compares the least cost with what the steps of the plan add up to.
Proof prove(ir::Program &program, const Request &request, const Topology &topology,
            const Plan &plan);

} // namespace spmd::rules::redistribute
