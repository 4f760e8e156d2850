// Programs whose ranks go through the parts of a tensor turn by turn and hand on what they make of
// them, as the stages of a pipeline do with micro-batches.
#pragma once

#include "checker/check.h"

namespace spmd::checker {

// Reports parts that results are made of in another way than of the others: none that is dropped,
// that comes twice, or that meets another part than it should. To be called when all is typed.
void judge_micro_batches(ir::Program &program, CheckResult &result);

} // namespace spmd::checker
