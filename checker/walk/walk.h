// The walk over a program in order, and over what an edit changes. Internal to the checker.
#pragma once

#include "checker/walk/edits.h"
#include "checker/walk/gradients/contracts.h"
#include "checker/walk/gradients/recorded_gradients.h"
#include "checker/walk/instruction/typing.h"
#include "checker/walk/program_interface.h"
#include "checker/walk/state.h"
#include "checker/walk/undecided/undecided_kinds.h"

#include <memory>

namespace spmd::checker {

class Walk {
public:
  // `infer`: what is known beyond declarations; none where the program declares its types.
  Walk(ir::Program &program, const CheckOptions &options, CheckResult &result,
       InferenceMaker infer = nullptr);
  void run();

  Mover mover; // none: nothing is moved

  // Takes `result`, a completed check, as the state to retype from.
  void resume();
  // Types again what an edit changes, from the edited instruction on, or from the first one that
  // runs its body. Findings are those of the instructions that were typed again; types and shapes
  // are as before when it returns. None: the edit does not take its operands as some call has them.
  // `result` must be a completed check.
  std::optional<std::vector<Finding>> retype(const Edit &edit);
  // One transition applied to one operand; none if it is refused.
  std::optional<rules::TensorInfo> transition(ir::OpNameId op, ir::AttrsId attrs,
                                              ir::ContextId context, rules::TensorInfo operand) {
    return edits_.transition(op, attrs, context, operand);
  }

private:
  WalkState state_;
  ir::Program &program_;
  CheckResult &result_;
  std::unique_ptr<Inference> inference_; // none unless the program is judged without declarations
  UndecidedKinds undecided_;
  GradientContracts contracts_;
  RecordedGradients gradients_;
  Edits edits_;
  InstructionTyping typing_;
  ProgramInterface interface_;
};

} // namespace spmd::checker
