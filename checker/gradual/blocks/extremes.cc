// Extremes along dimensions that an axis cuts.
#include "checker/gradual/blocks/extremes.h"

#include "rules/apply.h"
#include "rules/ops/op.h"
#include "rules/shapes/attrs.h"
#include "rules/transitions/call.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::ValueId;

AxisSet taken_axes(const rules::Application &app) {
  const ir::Shape *shape = app.args.empty() ? nullptr : app.shape(app.args[0]);
  const auto dims =
      shape ? rules::placed_dims(app, app.op.row->default_dim, shape->dims.size()) : std::nullopt;
  AxisSet axes;
  const ir::Type &type = app.type(app.args[0]);
  for (ir::AxisId axis : type.sharded())
    if (dims && llvm::is_contained(*dims, *type.dim(axis)))
      axes |= axis;
  return axes;
}

Extremes::Facts Extremes::infer(const rules::Application &app,
                                llvm::ArrayRef<ValueId> operands) const {
  Facts facts;
  if (operands.size() != 1)
    return facts;
  const auto before = of_.find(operands[0].index);
  if (app.op.form == rules::OpForm::Transition) {
    if (before == of_.end() || !rules::unstated_words(app.op.transition).reduces)
      return facts;
    rules::Outcome ignored;
    std::optional<rules::TransitionCall> call = rules::read_call(app, ignored);
    const ir::Combiner asked =
        call ? call->combiner.value_or(ir::Combiner::Sum) : ir::Combiner::Sum;
    if (asked != (before->second.greatest ? ir::Combiner::Max : ir::Combiner::Min))
      facts.mixed = before->second.own & rules::communicated_axes(app);
    return facts;
  }
  if (app.op.form != rules::OpForm::Equation || !app.op.row)
    return facts;
  const bool greatest = app.op.computes(rules::Computes::ReduceMax);
  if (greatest || app.op.computes(rules::Computes::ReduceMin)) {
    facts.own = taken_axes(app);
    facts.greatest = greatest;
  }
  if (before != of_.end()) { // views and casts, and extremes of extremes
    facts.own |= before->second.own;
    facts.greatest |= before->second.greatest;
  }
  return facts;
}

} // namespace spmd::checker
