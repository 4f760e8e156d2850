// The walk over a program in order. Internal to the checker.
#pragma once

#include "checker/check.h"
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
                                       rules::Arg operand);

private:
  void declare(uint32_t param);
  void judge_declaration(uint32_t param);
  bool touched(const ir::Inst &inst, const llvm::DenseSet<uint32_t> &changed) const;
  std::vector<bool> functions_that_run(ir::InstId inst);
  bool runs_one_of(const ir::Inst &inst, const std::vector<bool> &functions) const;
  void edit_operands(const ir::Inst &inst);
  void dropped(const ir::Inst &inst);
  void backward(const Edit &edit, const ir::Inst &inst);
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
  void claim(ir::InstId id, ir::ValueId value, ir::Type &type, ir::TypeId declared,
             rules::Spec spec);
  void claim_scale(ir::InstId id, ir::ValueId value, ir::Type &type, const ir::Type &claimed,
                   ir::AxisSet region);
  bool scale_claim_differs(ir::InstId id, ir::ValueId value, const ir::Type &type,
                           ir::ScaleId needed, ir::ScaleId claimed);
  void claim_shape(ir::InstId id, ir::ValueId value, ir::ShapeId claimed, ir::ShapeId found);
  void claim_sizes(ir::InstId id, ir::ValueId value, const ir::Type &type);
  void claim_whole(ir::InstId id, const ir::Type &type, const rules::Arg &found, ir::ShapeId stated,
                   ir::AxisSet joined);
  // A result that a condition chooses; the axes on which it may not be chosen.
  struct Choice {
    ir::Type type;
    ir::AxisSet invariant, partial, cut;
  };
  ir::AxisSet region_axes(const CallSite &site, const rules::ResolvedOp &op);
  void forget_shards(const CallSite &site, size_t operand, rules::Arg &arg);
  bool gives_even(ir::InstId id, llvm::ArrayRef<rules::Arg> args, ir::AxisSet axes);
  bool divides_evenly(ir::InstId id, llvm::SmallDenseSet<uint32_t, 8> &bodies);
  void restate_scale(ir::InstId id, ir::ValueId result, ir::Type &type, const ir::Type &claimed,
                     llvm::ArrayRef<rules::Arg> args, ir::AxisSet own);
  void join_region(const CallSite &site, ir::ValueId result, ir::Type &type, ir::TypeId declared);
  void take_as_addends(ir::InstId id, ir::ValueId value, ir::Type &type, const ir::Type &claimed,
                       ir::AxisSet region);
  void call(ir::InstId id, const ir::Inst &inst, const rules::ResolvedOp &op,
            rules::Outcome &outcome);
  void plain_call(CallSite &site);
  std::optional<ir::FunctionId> region(const CallSite &site, llvm::StringRef role);
  bool counts(const CallSite &site, ir::FunctionId function, size_t params, size_t results);
  Args enter(const CallSite &site, ir::FunctionId function, size_t first);
  // What a function, or a region's `in_types`, says of an operand.
  struct Declared {
    ir::TypeId type;
    ir::ShapeId shape, global_shape;
  };
  void cross(const CallSite &site, size_t operand, rules::Arg &arg, const Declared &declared,
             const ir::Function &callee);
  Round opaque(const ir::Function &function, llvm::ArrayRef<rules::Arg> args);
  Round evaluate(ir::FunctionId function, llvm::ArrayRef<rules::Arg> args);
  void reach(CallSite &site, const Round &round);
  void tell_believed(const CallSite &site);
  void keep_typings();
  void keep_values(ir::FunctionId id, TypedBody &instance);
  void type_body(ir::FunctionId id, llvm::ArrayRef<rules::Arg> args, TypedBody &instance);
  void state_results(const CallSite &site, rules::Outcome &outcome);

  void branches(CallSite &site);
  void scan(CallSite &site);
  void loop(CallSite &site);
  struct Turn {
    ir::Type condition;
    rules::Arg asked;   // what it is the type of; none for a number
    Round left, chosen; // as the body leaves them; as the condition chooses
  };
  Turn turn(const CallSite &site, ir::FunctionId more, ir::FunctionId body, const Args &args);
  std::optional<size_t> loop_constants(const CallSite &site, ir::FunctionId more,
                                       ir::FunctionId body);
  struct Carried {
    ir::TypeId next; // with which it enters the next round
    ir::Type type;   // what it has in common as it enters and as it leaves
    ir::AxisSet differs;
  };
  Carried carry(ir::TypeId enters, ir::TypeId leaves);
  Round carry_through(CallSite &site, ir::FunctionId body, Args &args, size_t first, size_t count,
                      llvm::function_ref<Round(const Args &)> run);
  rules::Arg joined(const CallSite &site, const ir::Type &condition, size_t result,
                    const rules::Arg &then, const rules::Arg &other);
  Choice choose(const CallSite &site, const ir::Type &condition, ir::Type type);
  ir::AxisSet several(const CallSite &site, const rules::Arg &condition);
  void report_choice(ir::InstId id, size_t result, const Choice &choice);
  bool push_condition(const ir::Type &condition);
  ir::Type condition_of(const CallSite &site, const Round &asked);
  void divergent(ir::InstId id, const rules::Application &app);
  void same_scale(ir::InstId id, const ir::Type &found, const ir::Type &other, std::string who,
                  rules::OperandIndex operand, ir::ValueId value, ir::Type &made);
  void same_shape(ir::InstId id, std::string what, const rules::Arg &stated,
                  const rules::Arg &found);
  rules::Arg one_of(const CallSite &site, size_t operand, std::optional<ir::Extent> &length);
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
  std::optional<Counts> before_; // the current instruction, as long as it may go into the cache
  ir::IndexTable body_table_;
  // Types of the conditions around the current body that differ between ranks.
  llvm::SmallVector<ir::TypeId, 2> conditions_;
  PlaceCache place_cache_;
  llvm::SmallVector<ir::ValueId, 4> targets_; // written by the current instruction: see make_key
  // Per function, the functions that run it; found when an edit of a body is first tried.
  std::vector<llvm::SmallVector<ir::FunctionId, 2>> run_by_;
  const bool unites_; // LTensor: what is invariant varies where it meets what does
  struct Before {
    ir::ValueId value;
    rules::Arg known;
  };
  std::vector<Before> undo_; // what an edit has changed so far
  void remember(ir::ValueId value) { undo_.push_back({value, state_.known(value)}); }
};

} // namespace spmd::checker
