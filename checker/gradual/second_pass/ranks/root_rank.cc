// What one rank has, it computes with as if all had it.
#include "checker/gradual/second_pass/ranks/root_rank.h"

#include "checker/program_queries.h"

#include "rules/transitions/call.h"

#include "ir/mesh/axis_scale.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;

void RootRank::take_root(const rules::Application &app) {
  on_root_ = roots_.together(app, state_.operands.values);
  if (!on_root_) {
    on_root_ = roots_.reduced(app);
    return;
  }
  handed_out_ = app.op.transition == rules::TransitionOp::Broadcast;
  for (size_t i = 0; i < state_.args.size(); ++i)
    if (const RootValues::Seen *seen = roots_.find(state_.operands.values[i])) {
      Type type = program_.types[seen->type];
      if (handed_out_)
        type.set_kind(seen->axis, Kind::Varying);
      state_.args[i].type = state_.intern(type);
    }
}

AxisSet RootRank::proved_on_root(ValueId operand) const {
  const RootValues::Seen *seen = on_root_ ? roots_.find(operand) : nullptr;
  return seen && seen->proved ? AxisSet(seen->axis) : AxisSet();
}

// A parameter that its owner updates and hands out, while this program does not see it: the
// gradient that it needs for that is the owner's, or that of all, and as large as it should be.
void RootRank::judge_handed_out(const ir::Inst &inst, const rules::ResolvedOp &op) {
  if (op.transition != rules::TransitionOp::Broadcast || inst.phase != ir::Phase::Optimizer)
    return;
  const rules::Application app = application(inst, op);
  const std::optional<RootValues::Seen> call = roots_.call(app);
  for (ValueId operand : state_.operands.values) {
    const ValueId gradient = roots_.gradient(storage_of(program_, operand));
    if (!call || !gradient.valid() || roots_.find(operand))
      continue;
    const RootValues::Seen *seen = roots_.find(gradient);
    const Type &type = program_.types[seen ? seen->type : result_.types[gradient.index]];
    const bool known =
        seen ? *seen == *call && seen->proved : result_.proved[gradient.index].contains(call->axis);
    if (!known || !type.same_on_all_ranks().contains(call->axis) || !type.scale.valid() ||
        ir::exponent_of(program_, type.scale, type.mesh(), call->axis) != 0)
      now_.open |= call->axis;
  }
}

void RootRank::begin() {
  on_root_.reset();
  handed_out_ = false;
}

void RootRank::judge(const rules::Application &app) const {
  if (on_root_ && app.op.transition == rules::TransitionOp::Reduce)
    now_.open -= on_root_->axis;
}

std::optional<Type> RootRank::seen(InstId id, const Type &type) const {
  if (!on_root_ || handed_out_)
    return std::nullopt;
  const bool reduces =
      state_.rules.resolve(program_.insts[id].op).transition == rules::TransitionOp::Reduce;
  return reduces && on_root_->type.valid() ? program_.types[on_root_->type] : type;
}

void RootRank::keep(ValueId value, const Type &seen, Type &type) {
  RootValues::Seen on_root = *on_root_;
  on_root.type = state_.intern(seen);
  on_root.proved = result_.proved[value.index].contains(on_root.axis);
  roots_.learn(value, on_root);
  result_.proved[value.index] -= on_root.axis; // the others do not have it
  type.set_unknown(on_root.axis);
}

} // namespace spmd::checker
