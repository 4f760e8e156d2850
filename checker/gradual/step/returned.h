// Gradients that come from elsewhere: another stage of a pipeline sends them back, or the step
// before has left them.
#pragma once

#include "checker/check.h"

#include "llvm/ADT/BitVector.h"

namespace spmd::checker {

void judge_returned(ir::Program &program, CheckResult &result);

// Of a program whose stages send to each other, the values of which everything is known between
// stages; empty where nothing is sent.
llvm::BitVector proved_in_stages(const ir::Program &program, const CheckResult &result);

} // namespace spmd::checker
