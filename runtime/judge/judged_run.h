// A run of a plan on a backend, held against the reference: step by step, at its outputs, or on a
// share of its steps.
#pragma once

#include "runtime/backends/backend.h"
#include "runtime/judge/bounds.h"
#include "runtime/judge/losses.h"
#include "runtime/judge/refutation.h"
#include "runtime/launch/team.h"
#include "runtime/reference/run.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace spmd::runtime {

// Sampled: a share of the steps, and the outputs. Drawn: so many steps, and nothing else is read.
enum class CheckMode : uint8_t { Off, Outputs, Sampled, All, Drawn };
inline constexpr std::string_view kCheckModeWords[] = {"off", "outputs", "sampled", "all",
                                                       "sample:N"};
constexpr bool is_stepwise(CheckMode mode) {
  return mode == CheckMode::All || mode == CheckMode::Sampled || mode == CheckMode::Drawn;
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
  llvm::function_ref<bool(uint64_t done, uint64_t all)> goes_on = nullptr; // false: stop here
};

// Gradients that the program was recorded with, against the derivative of its forward.
struct GradientReport {
  struct NotCompared {
    ir::ValueId value;
    std::string why;
  };
  bool recorded = false; // there are some
  uint64_t compared = 0;
  std::vector<ir::ValueId> zero; // of those that were compared: but for rounding
  std::vector<NotCompared> left; // that were not
};

struct RunReport {
  std::vector<ClaimVerdict> claims;
  std::vector<checker::Finding> findings; // at most one error; warnings besides
  std::vector<std::string> undecided;     // why, each reason once
  GradientReport gradients;
  uint64_t steps = 0, judged = 0;
  uint64_t digest = 0; // of the bits of all outputs on all ranks; 0: none were read

  uint64_t count(Verdict verdict) const;
  // A claim is refuted; on axes of one rank, which claim nothing, the finding alone says so.
  bool refuted() const;
};

// Runs the whole plan. Inputs must have been written. Where the program is one with its derived
// backward, gradients are judged too. An error is one of the backend.
llvm::Expected<RunReport> run_judged(checker::CheckedProgram &program, const Plan &plan,
                                     const World &world, Backend &backend,
                                     const JudgeOptions &options);

// Joins the verdicts of two runs of one program, claim by claim: another tier, another seed.
void join_reports(RunReport &into, RunReport more);

} // namespace spmd::runtime
