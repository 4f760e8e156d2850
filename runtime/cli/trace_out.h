// Values of a run as files: .npy with an index, or one .safetensors.
#pragma once

#include "runtime/backends/backend.h"
#include "runtime/inputs/inputs.h"

#include <optional>
#include <string>

namespace spmd::runtime {

struct TraceOutOptions {
  std::string target; // a folder, or a file `*.safetensors`
  bool ranks = false; // what each rank holds, besides what they mean together
  // The rank of this process, where each is one: it writes what it holds alone, and rank 0 the
  // index of all.
  std::optional<RankId> own;
  Domain domain = Domain::Declared;
  uint64_t seed = 0;
  std::string program; // as named on the command line
};

// Runs the plan once more, step by step, and writes each value as soon as it is there. Inputs must
// have been written. Empty, or what went wrong; files are whole or not there.
std::string trace_out(checker::CheckedProgram &program, const Plan &plan, const World &world,
                      Backend &backend, const TraceOutOptions &options);

} // namespace spmd::runtime
