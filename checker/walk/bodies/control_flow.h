// Branches and loops: which kinds a condition lets through, results of two branches, and carries.
// Internal to the checker.
#pragma once

#include "checker/walk/bodies/bodies.h"
#include "checker/walk/bodies/conditions.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace spmd::checker {

class ControlFlow {
public:
  ControlFlow(WalkState &state, UndecidedKinds &undecided, Bodies &bodies, Conditions &conditions)
      : state_(state), program_(state.program), undecided_(undecided), bodies_(bodies),
        conditions_(conditions) {}

  void branches(CallSite &site);
  void scan(CallSite &site);
  void loop(CallSite &site);

private:
  // A result that a condition chooses; the axes on which it may not be chosen.
  struct Choice {
    ir::Type type;
    ir::AxisSet invariant, partial, cut;
  };
  Choice choose(const CallSite &site, const ir::Type &condition, ir::Type type);
  void report_choice(ir::InstId id, size_t result, const Choice &choice);
  ir::AxisSet several(const CallSite &site, const rules::TensorInfo &condition);
  ir::Type condition_of(const CallSite &site, const Round &asked);
  rules::TensorInfo joined(const CallSite &site, const ir::Type &condition, size_t result,
                           const rules::TensorInfo &then, const rules::TensorInfo &other);
  // Two values that take turns.
  void same_scale(ir::InstId id, const ir::Type &found, const ir::Type &other, std::string who,
                  rules::OperandIndex operand, ir::ValueId value, ir::Type &made);
  void same_shape(ir::InstId id, std::string what, const rules::TensorInfo &stated,
                  const rules::TensorInfo &found);

  struct Carried {
    ir::TypeId next; // with which it enters the next round
    ir::Type type;   // what it has in common as it enters and as it leaves
    ir::AxisSet differs;
  };
  bool starts_as_zeros(const CallSite &site, size_t operand) const;
  Carried carry(ir::TypeId enters, ir::TypeId leaves);
  Round carry_through(CallSite &site, ir::FunctionId body, Args &args, size_t first, size_t count,
                      llvm::function_ref<Round(const Args &)> run);
  rules::TensorInfo one_of(const CallSite &site, size_t operand, std::optional<ir::Extent> &length);

  struct Turn {
    ir::Type condition;
    rules::TensorInfo asked; // what it is the type of; none for a number
    Round left, chosen;      // as the body leaves them; as the condition chooses
  };
  Turn turn(const CallSite &site, ir::FunctionId more, ir::FunctionId body, const Args &args);
  std::optional<size_t> loop_constants(const CallSite &site, ir::FunctionId more,
                                       ir::FunctionId body);

  WalkState &state_;
  ir::Program &program_;
  UndecidedKinds &undecided_;
  Bodies &bodies_;
  Conditions &conditions_;
};

} // namespace spmd::checker
