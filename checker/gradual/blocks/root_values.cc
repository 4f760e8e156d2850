// Sums to one rank.
#include "checker/gradual/blocks/root_values.h"

#include "checker/program_queries.h"

#include "rules/apply.h"
#include "rules/transitions/call.h"

#include "ir/mesh/axis_scale.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::Kind;
using ir::ValueId;

std::optional<RootValues::Seen> RootValues::call(const rules::Application &app) const {
  const ir::AttrValue *root = app.attr("root");
  const AxisSet axes = rules::communicated_axes(app);
  if (!root || root->form != ir::AttrForm::Integer || axes.size() != 1)
    return std::nullopt;
  return Seen{axes.first(), root->as_integer(), {}};
}

std::optional<RootValues::Seen> RootValues::reduced(const rules::Application &app) const {
  if (app.op.transition != rules::TransitionOp::Reduce || app.args.size() != 1)
    return std::nullopt;
  std::optional<Seen> seen = call(app);
  ir::Type type = app.type(app.args[0]);
  if (!seen || !(type.of(Kind::Partial) - type.zero() - type.unknown).contains(seen->axis))
    return std::nullopt;
  rules::Outcome ignored;
  const auto stated = rules::read_call(app, ignored);
  const ir::Combiner by = stated ? stated->combiner.value_or(ir::Combiner::Sum) : ir::Combiner::Max;
  if (by == ir::Combiner::Avg)
    type.scale =
        ir::quotient(program_, type.scale, ir::axis_scale(program_, type.mesh(), seen->axis));
  else if (by != ir::Combiner::Sum)
    return std::nullopt;
  type.set_kind(seen->axis, Kind::Replicate);
  seen->type = program_.types.add(type);
  return seen;
}

std::optional<RootValues::Seen> RootValues::together(const rules::Application &app,
                                                     llvm::ArrayRef<ValueId> operands) const {
  const Seen *first = nullptr;
  for (ValueId operand : operands)
    if (const Seen *seen = find(operand)) {
      if (first && !(*seen == *first))
        return std::nullopt;
      first = seen;
    }
  if (!first || operands.size() != app.args.size())
    return std::nullopt;
  for (size_t i = 0; i < operands.size(); ++i) {
    const ir::Type &type = app.type(app.args[i]);
    if (!find(operands[i]) && !type.same_on_all_ranks().contains(first->axis))
      return std::nullopt;
  }
  if (app.op.form == rules::OpForm::Transition &&
      rules::communicated_axes(app).contains(first->axis)) {
    const std::optional<Seen> handed = call(app);
    if (app.op.transition != rules::TransitionOp::Broadcast || !handed || !(*handed == *first))
      return std::nullopt;
  }
  return *first;
}

void RootValues::follow_gradient(ValueId value) {
  const ValueId storage = storage_of(program_, value);
  ValueId of = program_.values[value].grad_of;
  const ir::Param *param = of.valid() ? program_.find_param(of) : nullptr;
  if (param && param->role == ir::Role::Param)
    of_[storage.index] = of;
  else
    of = of_.lookup(storage.index);
  if (of.valid())
    last_[of.index] = value;
}

} // namespace spmd::checker
