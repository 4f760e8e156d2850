// What a judged run is asked for, and the parts of the program that all of it looks at.
#pragma once

#include "runtime/backends/backend.h"
#include "runtime/judge/bounds.h"
#include "runtime/judge/conformance.h"
#include "runtime/judge/losses.h"
#include "runtime/launch/team.h"

#include "checker/checked_program.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace spmd::runtime {

// Sampled: a share of the steps, and the outputs. Drawn: so many steps, and nothing else is read.
enum class CheckMode : uint8_t { Off, Outputs, SampleShare, All, SampleCount };
inline constexpr std::string_view kCheckModeWords[] = {"off", "outputs", "sampled", "all",
                                                       "sample:N"};
constexpr bool is_stepwise(CheckMode mode) {
  return mode == CheckMode::All || mode == CheckMode::SampleShare || mode == CheckMode::SampleCount;
}

struct JudgeOptions {
  CheckMode mode = CheckMode::Outputs;
  Tier tier = Tier::Field;
  Domain domain = Domain::Field;  // of the backend's data
  uint64_t seed = 0;              // of random numbers, as the backend has it; of the sample
  unsigned share = 8;             // Sampled: one step in so many
  llvm::ArrayRef<uint32_t> drawn; // Drawn: these (last_uses.h)
  std::string rerun;              // the command line, for findings
  Deadline deadline = kNoDeadline;
  SumOrder order = SumOrder::Ranks;
  bool judges = true; // false: another process does; steps are run and data are read for it
  // Where each rank is a process. Inputs and outputs are judged by what each says of its own; data
  // are sent only where something is wrong.
  Team *team = nullptr;
  // What ranks were given of an input, once for all that were given the same.
  struct Given {
    std::vector<RankId> ranks;
    Tensor tensor;
  };
  llvm::function_ref<std::vector<Given>(size_t param)> given = nullptr;
  const TensorSizes *sizes = nullptr; // how much exchanges move, where data do not say it
  // What a backward that was recorded starts from; empty: none was. Its gradients are held against
  // the derivative of the forward, in the real tier.
  llvm::ArrayRef<LossRoot> recorded;
  // The same of a backward that was derived: what `step` reads is of the loss of one device.
  llvm::ArrayRef<LossRoot> derived;
  ir::ValueId until; // stop after it is made; none: at the end
  llvm::function_ref<bool(uint64_t done, uint64_t all)> on_progress = nullptr; // false: stop here
};

// One run: its program and plan, and what carries the plan out.
struct RunSetup {
  checker::CheckedProgram &checked;
  ir::Program &program;
  const Plan &plan;
  const World &world;
  Backend &backend;
  const JudgeOptions &options;

  bool stepwise() const { return is_stepwise(options.mode); }
  // Whether numbers are so that nothing is rounded.
  bool exact() const { return options.domain == Domain::Field || options.tier == Tier::Integer; }
  bool has_data(const rules::TensorInfo &known) const {
    return known.type.valid() && known.shape.valid() && program.shapes[known.shape].ranked;
  }
};

} // namespace spmd::runtime
