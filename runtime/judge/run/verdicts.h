// What a judged run says of each claim that the program makes: the worst verdict over all
// executions, and one finding for what is refuted first.
#pragma once

#include "runtime/judge/recorded_gradients.h"
#include "runtime/judge/refutation.h"
#include "runtime/judge/run/rank_values.h"

namespace spmd::runtime {

class Verdicts {
public:
  Verdicts(const RunSetup &setup, RankValues &values, RunReport &report);

  // Judges what was read of a value. `missing`: why the reference has nothing for it. `blind`: axes
  // on which a mistake would show too little.
  void judge_value(PlannedId id, const ReferenceValue &wanted, const std::string *missing,
                   ir::AxisSet blind = {});
  // A gradient that was recorded: it is not the derivative, or it is.
  void refute_gradient(const RecordedGradient &wrong);
  void uphold_gradient(ir::ValueId gradient) { upheld_gradients_.insert(gradient.index); }
  // Gradients as the program names them, as its outputs do, or as was added; none: it is none.
  ir::ValueId gradient_of(ir::ValueId value) const { return gradient_of_.lookup(value.index); }
  void add_gradient(ir::ValueId gradient, ir::ValueId of) {
    gradient_of_.try_emplace(gradient.index, of);
  }
  // Once all is judged.
  void finish();

private:
  void refute(const Observed &observed, const Refuted &refuted, bool whole = false);
  bool is_gradient_upheld(const ClaimVerdict &of) const;

  const RunSetup &setup_;
  RankValues &values_;
  RunReport &report_;
  llvm::DenseMap<uint32_t, ir::ValueId> gradient_of_; // by ValueId
  llvm::DenseMap<uint64_t, size_t> claims_;           // by key_of: into RunReport::claims
  llvm::DenseSet<uint32_t> upheld_gradients_;         // by ValueId: recorded ones
  std::optional<size_t> first_;                       // into RunReport::findings
  ir::ValueId first_value_;
  std::vector<std::string> later_; // names of values that were refuted after it
};

} // namespace spmd::runtime
