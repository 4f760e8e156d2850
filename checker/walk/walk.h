// The walk over a program in order. Internal to the checker.
#pragma once

#include "checker/check.h"
#include "checker/walk/bodies/bodies.h"
#include "checker/walk/bodies/calls.h"
#include "checker/walk/bodies/conditions.h"
#include "checker/walk/bodies/control_flow.h"
#include "checker/walk/claims.h"
#include "checker/walk/edits.h"
#include "checker/walk/effects.h"
#include "checker/walk/gradients/contracts.h"
#include "checker/walk/gradients/recorded_gradients.h"
#include "checker/walk/state.h"
#include "checker/walk/undecided/undecided_kinds.h"

#include "rules/boundary/boundary.h"
#include "rules/boundary/contract.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

namespace spmd::checker {

class Walk {
public:
  Walk(ir::Program &program, const CheckOptions &options, CheckResult &result);
  ~Walk();
  void run();

  // Sees each op of an implicit region with its outcome, and may give it other operands and attributes:
  // those that are moved (elaborate.h). `values`: what the operands are.
  using Mover = std::function<void(ir::InstId, rules::Rules &, llvm::ArrayRef<ir::ValueId> values,
                                   const rules::Outcome &, rules::Application &,
                                   llvm::MutableArrayRef<rules::Arg>)>;
  Mover mover;

  // Takes `result`, a completed check, as the state to retype from.
  void resume();
  // Types again what an edit changes, from the edited instruction on, or from the first one that runs its
  // body. Findings are those of the instructions that were typed again; types and shapes are as before
  // when it returns. None: the edit does not take its operands as some call has them. `result` must be a
  // completed check.
  std::optional<std::vector<Finding>> retype(const Edit &edit);
  // One transition applied to one operand; none if it is refused.
  std::optional<rules::Arg> transition(ir::OpNameId op, ir::AttrsId attrs, ir::ContextId context,
                                       rules::Arg operand) {
    return edits_.transition(op, attrs, context, operand);
  }

private:
  void declare(uint32_t param);
  void judge_declaration(uint32_t param);
  void undecided(uint32_t param, ir::Type &type);
  void instructions(const ir::Body &body);
  void instruction(ir::InstId id) {
    if (!settle(id))
      type_instruction(id);
  }
  void type_instruction(ir::InstId id);
  bool settle(ir::InstId id);
  // What an instruction has to do with its place in the program.
  struct Surroundings {
    bool matters = false;   // to its type: an operand is stale, or open
    bool gradients = false; // its results are marked as gradients
  };
  Surroundings make_key(const ir::Inst &inst);
  bool overwrite(ir::InstId id, const ir::Inst &inst, InstructionCache::Entry &entry);
  bool keeps_types(const ir::Inst &inst, const rules::Outcome &outcome);
  // How many findings and facts there are, before an instruction and after it.
  struct Counts {
    size_t findings, words, facts;
    uint64_t silent;
    friend bool operator==(const Counts &, const Counts &) = default;
  };
  Counts counted() const {
    return {state_.trail->entries.size(), state_.trail->inferred.size(), state_.trail->open.size(),
            state_.trail->stats.silent};
  }
  void note_cached(const ir::Inst &inst, const rules::ResolvedOp &op,
                   const rules::Outcome &outcome);
  bool lift(ir::InstId id, const ir::Inst &inst);
  // LTensor (casts.cc).
  ir::AxisSet union_axes(const rules::Application &app, const rules::Outcome &outcome);
  llvm::SmallVector<ir::AxisSet, 8> marked(ir::AxisSet axes);
  bool cast_implicitly(ir::InstId id, const rules::Application &app, const rules::Outcome &outcome);
  std::string rule_text(const rules::ResolvedOp &op) const;
  void missing(ir::InstId id, const ir::Context &context);
  void results(ir::InstId id, const ir::Inst &inst, const rules::Outcome &outcome);
  void type_results(ir::InstId id, const ir::Inst &inst, const rules::Outcome &outcome,
                    llvm::ArrayRef<ir::AxisSet> unknown_axes);
  void output(uint32_t index);
  void judge_output(uint32_t index);
  void state_output(uint32_t index);

  WalkState state_;
  ir::Program &program_;
  CheckResult &result_;
  std::unique_ptr<SecondReading> second_; // none unless the program is judged without declarations
  UndecidedKinds undecided_;
  GradientContracts contracts_;
  RecordedGradients gradients_;
  Effects effects_;
  Claims claims_;
  Edits edits_;
  Conditions conditions_;
  Bodies bodies_;
  ControlFlow control_;
  Calls calls_;
  std::optional<Counts> before_; // the current instruction, as long as it may go into the cache
  PlaceCache place_cache_;
  llvm::SmallVector<ir::ValueId, 4> targets_; // written by the current instruction: see make_key
  const bool unites_; // LTensor: what is invariant varies where it meets what does
};

} // namespace spmd::checker
