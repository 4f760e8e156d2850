// The backward of a plan: no planner runs.
#pragma once

#include "rules/redistribute/request.h"

namespace spmd::rules::redistribute {

// The dual row of one step, between the dual types.
Step transpose(ir::Program &program, const Step &step);
// The dual rows of the steps in reverse order, between the dual types; a step whose backward does
// nothing to both bytes and kinds is left out. Transposed twice it is the plan again, Reduced read
// as R.
Plan transpose(ir::Program &program, const Plan &plan);
// From the dual of the target to the dual of the source.
Request transpose(ir::Program &program, const Request &request);

} // namespace spmd::rules::redistribute
