// A run of a plan on a backend, held against the reference: step by step, at its outputs, or on a
// share of its steps.
#pragma once

#include "runtime/judge/run/options.h"
#include "runtime/judge/run/report.h"

namespace spmd::runtime {

// Runs the whole plan. Inputs must have been written. Where the program is one with its derived
// backward, gradients are judged too. An error is one of the backend.
llvm::Expected<RunReport> run_judged(checker::CheckedProgram &program, const Plan &plan,
                                     const World &world, Backend &backend,
                                     const JudgeOptions &options);

} // namespace spmd::runtime
