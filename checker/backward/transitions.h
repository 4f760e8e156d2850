// The backward of transitions, their duals, and of ops at the edges of the typed world.
#pragma once

#include "checker/backward/builder.h"

#include "rules/redistribute/call.h"
#include "rules/transitions/call.h"

namespace spmd::checker {

class TransitionBackward : BackwardBuilder {
public:
  explicit TransitionBackward(BackwardState &state) : BackwardBuilder(state) {}

  bool through_transition(const Inst &inst, const rules::ResolvedOp &op,
                          llvm::ArrayRef<ValueId> results, Gradients &gradients);
  bool through_boundary(const Inst &inst, const rules::ResolvedOp &op,
                        llvm::ArrayRef<ValueId> results, Gradients &gradients);

private:
  // One transition of a call, on axes with the same transition.
  struct DualStep {
    const rules::Transition *row;
    WrittenKind src, dst;
    llvm::SmallVector<ir::AxisRef, 2> axes;
    AxisSet typed;
  };

  std::optional<llvm::SmallVector<DualStep, 2>>
  steps(const rules::Application &app, const rules::TransitionCall &call, uint32_t operand);
  ValueId dual(const Inst &inst, const DualStep &step, const rules::TransitionCall &call,
               ValueId gradient, ValueId of, const InsertionPoint &outside);
  ValueId joint_dual(const rules::Application &app, const rules::TransitionCall &call,
                     uint32_t operand, ValueId result, ValueId gradient, ValueId of,
                     const InsertionPoint &around);
  ValueId by_stated(const rules::redistribute::BackwardRedistribution &way, ValueId gradient,
                    ValueId of, const InsertionPoint &around);
  std::optional<ir::AttrsId> dual_attrs(const Inst &inst, const DualStep &step,
                                        const rules::Transition &row, ValueId of);
  std::optional<AttrValue> lengths_of(ValueId of, const DualStep &step);
  ValueId pass_on(ValueId gradient, ValueId of, const InsertionPoint &around);
};

} // namespace spmd::checker
