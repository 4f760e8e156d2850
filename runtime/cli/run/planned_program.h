// The plan of a call and its inputs: how many ranks, what memory, and a backend that has been given
// its data.
#pragma once

#include "runtime/cli/run/ranks.h"
#include "runtime/inputs/inputs.h"
#include "runtime/judge/run/judged_run.h"
#include "runtime/plan/tensor_sizes.h"

namespace spmd::runtime {

// Which numbers a run computes with, and what counts as equal.
struct RunMode {
  Tier tier = Tier::Real;
  Domain domain = Domain::Declared;

  bool is_whole() const { return tier == Tier::Integer; }
};

class PlannedProgram {
public:
  PlannedProgram(const RunOptions &options, checker::CheckedProgram &program, Reporter &reporter,
                 Ranks &ranks);

  // The world, the first plan and the inputs. False: it cannot be run, which was said.
  bool make();
  // The plan; where data say how much is moved, that of these inputs.
  bool plan_for(uint64_t seed, RunMode mode);
  // Whether its memory is there; said if not.
  bool fits();

  checker::CheckedProgram &program() { return program_; }
  const World &world() const { return *world_; }
  const Plan &plan() const { return *plan_; }
  Inputs &inputs() { return *inputs_; }
  // Data say how much is moved: each run may have a plan of its own.
  bool sized_by_data() const { return sized_by_data_; }
  const TensorSizes &sizes() const { return sizes_; }
  // Of the plans so far, the largest.
  int64_t peak_bytes() const { return peak_bytes_; }
  llvm::ArrayRef<LossRoot> loss_roots() const { return roots_; } // of a recorded backward

  // In order: with which numbers each seed is run.
  llvm::SmallVector<RunMode, 3> modes();
  // The instructions that are judged, where few are.
  std::vector<uint32_t> drawn_for(uint64_t seed) const;

  // Prepared, with the inputs written; null, and said: it cannot run the plan.
  std::unique_ptr<Backend> with_inputs(std::unique_ptr<Backend> backend, const Plan &plan,
                                       uint64_t seed, RunMode mode);
  bool write_inputs(Backend &backend, const Plan &plan, uint64_t seed, RunMode mode);
  static InputOptions input_options(uint64_t seed, RunMode mode) {
    return {.seed = seed, .domain = mode.domain, .whole_numbers = mode.is_whole()};
  }
  std::vector<JudgeOptions::Given> given_to_ranks(size_t param, const InputOptions &options) const;

private:
  bool stays_whole();
  bool read_inputs();
  void refuse_memory(const NoDeviceMemory &memory);

  const RunOptions &options_;
  checker::CheckedProgram &program_;
  Reporter &reporter_;
  Ranks &ranks_;
  std::optional<World> world_;
  std::optional<Plan> plan_;
  std::vector<LossRoot> roots_;
  InputFiles files_;
  std::optional<Inputs> inputs_;
  bool sized_by_data_ = false;
  TensorSizes sizes_;
  // What plan_ is for: seed, domain, inputs are whole numbers.
  std::tuple<uint64_t, Domain, bool> planned_;
  int64_t peak_bytes_ = 0;
};

} // namespace spmd::runtime
