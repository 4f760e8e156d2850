// Extremes along dimensions that an axis cuts.
#include "checker/gradual/blocks/extremes.h"

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

Extremes::Made Extremes::made(const rules::Application &app,
                              llvm::ArrayRef<ValueId> operands) const {
  Made made;
  if (operands.size() != 1)
    return made;
  const auto before = of_.find(operands[0].index);
  if (app.op.form == rules::OpForm::Transition) {
    if (before == of_.end() || !rules::unstated_words(app.op.transition).reduces)
      return made;
    rules::Outcome ignored;
    std::optional<rules::TransitionCall> call = rules::read_call(app, ignored);
    const ir::Combiner asked =
        call ? call->combiner.value_or(ir::Combiner::Sum) : ir::Combiner::Sum;
    if (asked != (before->second.greatest ? ir::Combiner::Max : ir::Combiner::Min))
      made.mixed = before->second.own & rules::communicated_axes(app);
    return made;
  }
  if (app.op.form != rules::OpForm::Equation || !app.op.row)
    return made;
  const bool greatest = app.op.computes(rules::Computes::Greatest);
  if (greatest || app.op.computes(rules::Computes::Least)) {
    made.own = taken_axes(app);
    made.greatest = greatest;
  }
  if (before != of_.end()) { // views and casts, and extremes of extremes
    made.own |= before->second.own;
    made.greatest |= before->second.greatest;
  }
  return made;
}

} // namespace spmd::checker
