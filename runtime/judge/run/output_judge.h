// What is there when a run is done, against the whole program on one device, from what its inputs
// mean: outputs, and the gradients that the optimizer reads.
#pragma once

#include "runtime/judge/run/verdicts.h"
#include "runtime/reference/run.h"

namespace spmd::runtime {

class OutputJudge {
public:
  OutputJudge(const RunSetup &setup, Reference &reference, RankValues &values, Verdicts &verdicts,
              RunReport &report);

  // Outputs, and what `step` reads; nothing where only drawn steps are judged.
  llvm::ArrayRef<PlannedId> outputs() const { return outputs_; }
  // Of each parameter in order; without pieces: it means nothing that we know.
  void add_input(Meaning input) { inputs_.push_back(std::move(input)); }
  // The reference goes on from what the ranks hold of this value.
  void replace(ir::ValueId value, Meaning meaning) { replaced_[value.index] = std::move(meaning); }
  // The outputs were read.
  void judge();

private:
  void judge_output(PlannedId id, const Meaning *meant);
  void judge_recorded_gradients(ReferenceRun &run);
  void judge_derived_gradients(ReferenceRun &run);
  void add_digest(PlannedId id);
  bool scale_to_one_device(PlannedId id, Meaning &meant);
  ir::ValueId find_loss();

  const RunSetup &setup_;
  Reference &reference_;
  RankValues &values_;
  Verdicts &verdicts_;
  RunReport &report_;
  std::vector<PlannedId> outputs_;
  Meanings inputs_;
  llvm::DenseMap<uint32_t, Meaning> replaced_; // by ValueId
};

} // namespace spmd::runtime
