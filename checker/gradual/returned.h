// Gradients that come from elsewhere: another stage of a pipeline sends them back, or the step
// before has left them.
#pragma once

#include "checker/check.h"

namespace spmd::checker {

void judge_returned(ir::Program &program, CheckResult &result);

} // namespace spmd::checker
