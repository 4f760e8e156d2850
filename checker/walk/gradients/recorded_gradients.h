// Gradients that a program contains: whether each is of the dual type of its value, of the scale
// that its root has, and summed before the optimizer reads it. Internal to the checker.
#pragma once

#include "checker/walk/gradients/contracts.h"
#include "checker/walk/state.h"
#include "checker/walk/undecided/undecided_kinds.h"

#include "llvm/ADT/DenseMap.h"

namespace spmd::checker {

class RecordedGradients {
public:
  RecordedGradients(WalkState &state, GradientContracts &contracts, UndecidedKinds &undecided);

  // The gradients among the results of an instruction. Reported in their turn, after the types of
  // all results.
  void meet(ir::InstId id, const ir::Inst &inst, bool transition);
  // Remembers which value a transition made of which, where gradients of them may be met.
  void note_move(ir::InstId id);
  // Declared values that are gradients of what is made later. Reported among the declarations, at
  // `position`.
  void judge_declared(size_t position);
  // What the optimizer reads is the sum. The axes on which it reads addends of the gradient of a
  // parameter, of `param` if it is one; reported where the first of them is read.
  ir::AxisSet unreduced(Place place, llvm::ArrayRef<ir::ValueId> read, ir::ValueId param,
                        ir::AxisSet axes);

private:
  void judge(Place place, ir::ValueId gradient, bool reported);
  bool is_one_of_equal(const ir::Type &root, ir::ValueId of, const ir::Type &forward,
                       const ir::Type &gradient, ir::ScaleId needed) const;
  void judge_scale(Place place, ir::ValueId gradient, const ir::Type &forward, ir::Type found);
  ir::AxisSet refused_gradient(ir::ValueId gradient, const ir::Type &forward, const ir::Type &found,
                               ir::AxisSet local);
  ir::AxisSet never_summed(ir::ValueId gradient);
  void keeps_one(ir::InstId id);
  ir::ValueId first_gradient(ir::ValueId value) const {
    return first_gradients_.empty() ? ir::ValueId() : first_gradients_[value.index];
  }

  WalkState &state_;
  ir::Program &program_;
  CheckResult &result_;
  GradientContracts &contracts_;
  UndecidedKinds &undecided_;
  std::vector<ir::ValueId>
      first_gradients_; // per value, as backward leaves them; empty: no gradients
  llvm::DenseMap<uint32_t, ir::ValueId> moved_;       // operand of a transition -> its result
  llvm::DenseMap<uint32_t, ir::AxisSet> kept_of_one_; // R of which a convert keeps that of one rank
  // Parameters, and the axes on which it was reported that their gradient is not summed.
  llvm::DenseMap<uint32_t, ir::AxisSet> unreduced_;
  ir::ScaleId gradient_scale_; // of the root, where no value is known to be it
};

} // namespace spmd::checker
