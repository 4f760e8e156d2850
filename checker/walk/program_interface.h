// Where values enter a program and leave it: declarations and outputs. Internal to the checker.
#pragma once

#include "checker/walk/gradients/contracts.h"
#include "checker/walk/gradients/recorded_gradients.h"
#include "checker/walk/state.h"
#include "checker/walk/undecided/undecided_kinds.h"

namespace spmd::checker {

class ProgramInterface {
public:
  ProgramInterface(WalkState &state, UndecidedKinds &undecided, GradientContracts &contracts,
                   RecordedGradients &gradients)
      : state_(state), program_(state.program), result_(state.result), undecided_(undecided),
        contracts_(contracts), gradients_(gradients) {}

  void declare(uint32_t param);
  void output(uint32_t index);
  void resume(); // when types are known

private:
  void decide(uint32_t param, ir::Type &type);
  bool judge_claim(uint32_t index, ir::Type &leaves);
  void judge_loss(Place place, ir::ValueId value, const ir::Type &type);
  void judge_state(uint32_t index);

  WalkState &state_;
  ir::Program &program_;
  CheckResult &result_;
  UndecidedKinds &undecided_;
  GradientContracts &contracts_;
  RecordedGradients &gradients_;
};

} // namespace spmd::checker
