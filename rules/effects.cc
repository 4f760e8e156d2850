// What an op does to ranks and elements, whatever its form.
#include "rules/apply.h"

#include "rules/boundary/op.h"
#include "rules/redistribute/call.h"
#include "rules/transitions/call.h"

#include "ir/claims.h"

namespace spmd::rules {

using ir::AxisId;
using ir::AxisSet;

static bool communicates(const Transition &row, bool backward) {
  if (row.composed) {
    TransitionParts parts = parts_of(row);
    return communicates(*parts.first, backward) || communicates(*parts.second, backward);
  }
  const Transition *dual = dual_of(row);
  return row.collective != Collective::None ||
         (backward && dual && dual->collective != Collective::None);
}

AxisSet communicated_axes(const Application &app) {
  Outcome ignored;
  AxisSet axes;
  bool sends = app.op.boundary == Boundary::Send || app.op.boundary == Boundary::Recv;
  if (sends && app.attr("axis"))
    axes = named_axes(app);
  if (app.op.form != OpForm::Transition)
    return axes;
  if (redistribute::states_whole_type(app))
    return redistribute::communicated_axes(app);
  std::optional<TransitionCall> call = read_call(app, ignored);
  if (!call)
    return axes;
  for (uint32_t operand : operands_of(app)) {
    ir::Type type = app.type(app.args[operand]).without_shards();
    TransitionOperand view{app, *call, type};
    bool backward = app.op_context().grad && !type.gradient_free();
    for (size_t i = 0; i < call->axes.written.size(); ++i)
      for (AxisId axis : call->axes.written[i].axes) {
        AxisEffect effect = effect_of(view, i, axis);
        // A call that names no row of its own is judged by what the name communicates.
        bool over = effect.row ? communicates(*effect.row, backward)
                               : !effect.identity && call->unstated->src.has_value();
        if (over)
          axes |= axis;
      }
  }
  return axes;
}

bool is_product(const ResolvedOp &op) {
  return op.computes(Computes::Mul) || op.computes(Computes::Div);
}

bool moves_elements(const ResolvedOp &op) {
  if (op.form == OpForm::Boundary)
    return passes_data(op.boundary);
  if (op.form != OpForm::Equation || !op.row)
    return false;
  const Equation &row = op.row->equation.equation;
  if (op.row->new_elements || row.sum_count != 1 || row.term_count != 1 ||
      row.terms[0].atom_count != 1 || row.terms[0].divisors != 0 || row.terms[0].negative ||
      row.atoms[0].form != Atom::Form::Ref)
    return false;
  const Ref &read = row.refs[row.atoms[0].first];
  return read.role == RefRole::Value && read.index == kNoFactor && read.operand != kGenerator &&
         row.operands[read.operand].list != ListForm::Multiplied; // as `einsum` does
}

} // namespace spmd::rules
