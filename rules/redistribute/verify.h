// A plan is not trusted: each step must be accepted by the rules that check programs, and the whole
// is carried out on symbolic blocks.
#pragma once

#include "rules/apply.h"
#include "rules/redistribute/request.h"

#include <string>

namespace spmd::rules::redistribute {

// A value of the type whose blocks follow the nested rule; `whole`: its extents on all ranks
// together.
TensorInfo arg_of(ir::Program &program, ir::TypeId type, ir::ShapeId whole);

// Applies one step to a value on which no other axis is local; what the rules say of it.
Outcome apply_step(ir::Program &program, Rules &rules, const Step &step, const TensorInfo &value,
                   ir::ShapeId whole);

// Empty, or which step of the plan is wrong. Blocks are followed on all ranks of the mesh up to a
// few thousand of them; beyond that, and with symbols for extents, the rules alone decide.
std::string verify(ir::Program &program, Rules &rules, const Request &request, const Plan &plan);

} // namespace spmd::rules::redistribute
