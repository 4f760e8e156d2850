// Plans of programs in which tensors say how much an exchange moves, as experts without a capacity
// do: extents that depend on data, different on each rank.
#pragma once

#include "runtime/backends/backend.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace spmd::runtime {

// A backend that has prepared a plan, with its inputs written; null ends the planning with an
// error.
using StartedBackend = llvm::function_ref<std::unique_ptr<Backend>(const Plan &plan)>;

// The plan for these inputs: as far as the sizes are known it is run, what it leaves says the next
// ones, until there is no more to ask. `sizes`: what was said. Errors: those of make_plan and of
// the backend; a size that is no length.
llvm::Expected<Plan> make_sized_plan(checker::CheckedProgram &program, const World &world,
                                     StartedBackend started, TensorSizes &sizes,
                                     PlanOptions options = {});

} // namespace spmd::runtime
