// Types one instruction after another: operands, rule, results, and what they do to storage and
// gradients. Internal to the checker.
#pragma once

#include "checker/walk/bodies/bodies.h"
#include "checker/walk/bodies/calls.h"
#include "checker/walk/bodies/conditions.h"
#include "checker/walk/bodies/control_flow.h"
#include "checker/walk/edits.h"
#include "checker/walk/gradients/contracts.h"
#include "checker/walk/gradients/recorded_gradients.h"
#include "checker/walk/instruction/claims.h"
#include "checker/walk/instruction/effects.h"
#include "checker/walk/state.h"
#include "checker/walk/undecided/undecided_kinds.h"

#include <functional>

namespace spmd::rules {
class KeyComparison;
}

namespace spmd::checker {

// Sees each op of an implicit region with its outcome, and may give it other operands and
// attributes: those that are moved (elaborate.h). `values`: what the operands are.
using Mover = std::function<void(ir::InstId, rules::Rules &, llvm::ArrayRef<ir::ValueId> values,
                                 const rules::Outcome &, rules::Application &,
                                 llvm::MutableArrayRef<rules::TensorInfo>)>;

class InstructionTyping {
public:
  InstructionTyping(WalkState &state, UndecidedKinds &undecided, GradientContracts &contracts,
                    RecordedGradients &gradients, Edits &edits, const Mover &mover);

  void instruction(ir::InstId id);
  // What a completed check knows of it.
  void resume(ir::InstId id) { effects_.resume(id); }
  // What is known of bodies goes into the result of the check.
  void keep_typings() { bodies_.keep_typings(); }
  // LTensor: what is invariant varies where it meets what does.
  bool casts() const { return casts_; }

private:
  void instructions(const ir::Body &body);
  void apply_rule(ir::InstId id);
  void read_operands(const ir::Inst &inst, const rules::ResolvedOp &op);
  bool may_repeat() const;
  bool are_operands(llvm::ArrayRef<ir::Operand> operands, ir::ValueId first,
                    rules::KeyComparison &words, Writes &writes);
  bool repeats(ir::InstId id, const ir::Inst &inst);
  void keep_plain(const ir::Inst &inst, const rules::Application &app,
                  const rules::Outcome &outcome, uint32_t application);
  bool prepare(ir::InstId id, const ir::Inst &inst, const rules::ResolvedOp &op);
  void judge_missing(ir::InstId id);
  bool lift(ir::InstId id, const ir::Inst &inst);
  const rules::Outcome &judged(const rules::Application &app);
  void take(ir::InstId id, const rules::Application &app, const rules::Outcome &outcome,
            bool checked);
  void results(ir::InstId id, const ir::Inst &inst, const rules::ResolvedOp &op,
               const rules::Outcome &outcome);
  void type_result(ir::InstId id, const ir::Inst &inst, uint32_t index,
                   const rules::TensorInfo &found, ir::AxisSet unknown_axes, bool by_rule);

  WalkState &state_;
  ir::Program &program_;
  CheckResult &result_;
  UndecidedKinds &undecided_;
  GradientContracts &contracts_;
  RecordedGradients &gradients_;
  Edits &edits_;
  const Mover &mover_;
  const bool casts_, rewrites_; // rewrites: ops get other operands here
  Effects effects_;
  Claims claims_;
  Conditions conditions_;
  Bodies bodies_;
  ControlFlow control_;
  Calls calls_;
  // Per distinct application: where its results stand in `plain_results_` if to type an
  // instruction of it that writes these operands is to give its results their types, and nothing
  // more; else none.
  struct Plain {
    uint32_t results = rules::Rules::kNone;
    Writes writes = Writes::None;
    bool transition = false;
  };
  std::vector<Plain> plain_;
  std::vector<rules::TensorInfo> plain_results_;
  bool by_value_ = false; // the type of this instruction depends on which values its operands are
};

} // namespace spmd::checker
