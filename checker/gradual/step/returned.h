// Gradients that come from elsewhere: another stage of a pipeline sends them back, or the step
// before has left them.
#pragma once

#include "checker/check.h"

#include "llvm/ADT/BitVector.h"

namespace spmd::checker {

// Pipelines: gradients that come back to another value than the one that was sent, a received
// activation that a later message overwrites before the backward has read it, a backward that adds
// to the gradient which the step before has left, and tied copies that drift apart. Clears
// CheckResult::proved of the outputs concerned.
void judge_received_gradients(ir::Program &program, CheckResult &result);

// Of a program whose stages send to each other, the values of which everything is known between
// stages; empty where nothing is sent.
llvm::BitVector proved_in_stages(const ir::Program &program, const CheckResult &result);

} // namespace spmd::checker
