// How long a plan takes: all of its steps at a time, with nothing read in between.
#pragma once

#include "runtime/backends/backend.h"
#include "runtime/inputs/inputs.h"
#include "runtime/launch/team.h"

#include <string>
#include <vector>

namespace spmd::runtime {

// Seconds, a number for each run: those of the rank that took longest.
struct RunTimes {
  std::vector<double> runs;
  std::vector<double> bare; // as Backend::run_bare; empty: there is none
  std::string no_bare;      // why
};

// Runs the plan `count` times after some that are not counted, each time with these inputs. Ranks
// that are processes begin together; rank 0 gets the times of all, another rank its own.
llvm::Expected<RunTimes> time_runs(const Plan &plan, Backend &backend, const Inputs &inputs,
                                   const InputOptions &options, Team *team, unsigned count);

// A line for each kind of run: the median, the least, the most.
std::string print_times(const RunTimes &times);

} // namespace spmd::runtime
