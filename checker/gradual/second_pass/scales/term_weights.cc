// Which terms of a loss carry the size of an axis as their weight.
#include "checker/gradual/second_pass/scales/term_weights.h"

#include "checker/walk/gradients/backward_slice.h"

#include "rules/boundary/claims.h"
#include "rules/violations/gradients.h"

#include "ir/mesh/axis_scale.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::ValueId;
using rules::Computes;

void TermWeights::follow(const ir::Inst &inst, ValueId value) {
  AxisSet axes;
  for (uint32_t i = 0; i < state_.operands.values.size(); ++i)
    if (!now_.unread.contains(i))
      axes |= weights_.lookup(state_.operands.values[i].index);
  const ir::MeshId mesh = program_.contexts[inst.context].mesh;
  const ir::AttrValue *by = state_.rules.resolve(inst.op).boundary == rules::Boundary::Scale
                                ? program_.find(inst.attrs, "by")
                                : nullptr;
  if (by && by->form == ir::AttrForm::Scale) {
    const ir::ScaleId scale = ir::canonical_scale(program_, by->as<ir::ScaleId>(), mesh);
    for (AxisId axis : ir::axes_in(program_, scale, mesh))
      if (ir::exponent_of(program_, scale, mesh, axis) > 0)
        axes |= axis;
  }
  if (axes)
    weights_[value.index] |= axes;
}

// One term of a loss is multiplied with the size of an axis, and another one is not: that may be
// its weight, as where there are as many experts as ranks. Gradients of the terms differ likewise.
bool TermWeights::explain(Place place, const rules::Violation &violation) const {
  if (!violation.is<rules::ScaleMismatch>() || place.form != Place::Form::Inst ||
      !state_.rules.resolve(program_.insts[place.as_inst()].op).computes(Computes::Add))
    return false;
  const ir::Inst &inst = program_.insts[place.as_inst()];
  const bool numbers =
      llvm::all_of(state_.args, [&](const rules::TensorInfo &arg) { return is_scalar(arg.shape); });
  if (inst.phase != ir::Phase::Backward && !(is_forward(inst) && numbers))
    return false;
  AxisSet all = ~AxisSet(), any;
  for (ValueId operand : state_.operands.values) {
    all &= weights_.lookup(operand.index);
    any |= weights_.lookup(operand.index);
  }
  return (any - all).contains(rules::axes_of(violation));
}

} // namespace spmd::checker
