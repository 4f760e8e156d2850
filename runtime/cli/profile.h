// How long each step of a plan takes, as a trace that Perfetto and chrome://tracing show.
#pragma once

#include "runtime/backends/backend.h"
#include "runtime/launch/team.h"

#include <string>
#include <vector>

namespace spmd::runtime {

struct StepTime {
  uint32_t step = 0;          // a branch or a loop: with all that is in it
  double begin = 0, took = 0; // microseconds since the run began
};

using TimesByRank = std::vector<std::vector<StepTime>>;

// Runs the plan once more, one step after another. Inputs must have been written. Where ranks are
// processes rank 0 gets what all of them measured, and the others nothing; else there is one entry
// for all.
llvm::Expected<TimesByRank> time_steps(const Plan &plan, Backend &backend, Team *team);

// JSON; one row for each rank, or one for all where they are in one process.
std::string print_profile(const ir::Program &program, const Plan &plan, const TimesByRank &times,
                          bool together);

} // namespace spmd::runtime
