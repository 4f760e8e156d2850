// The order of the steps: declared values, operands before their rule sees them, what is judged
// beside the rule, and results.
#include "checker/gradual/second_pass/second_pass.h"

#include "checker/gradual/inference.h"

#include "rules/boundary/claims.h"
#include "rules/shards/remesh.h"

#include "ir/mesh/axis_scale.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;

Parts::Parts(WalkState &state)
    : zeros(state, now), lookups(state, now, zeros), norms(state, now), edges(state, now),
      rings(state, now, edges), joined(state, now), origins(state, now), experts(state, now, zeros),
      root(state, now), one_rank(state, now, lookups.offsets()), numbers(state, now),
      own_counts(state, now, origins, lookups), means(state, now), weights(state, now),
      doubts(state, now), gradients(state, now) {}

std::unique_ptr<Inference> second_pass(WalkState &state) {
  return state.result.gradual ? std::make_unique<SecondPass>(state) : nullptr;
}

SecondPass::SecondPass(WalkState &state)
    : state_(state), program_(state.program), gradual_(*state.result.gradual), parts_(state),
      operands_(state, parts_.now), cuts_(state, parts_.now), proof_(state, parts_),
      certainty_(state, parts_) {
  state.result.proved.resize(program_.values.size());
  state.result.scaled.resize(program_.values.size());
  state.result.own.resize(program_.values.size());
}

void SecondPass::declare(ValueId value, const Type &type) {
  const AxisSet own = gradual_.cuts().owned(value) & (type.of(Kind::Varying) - type.sharded());
  parts_.experts.declare(value, own);
  parts_.rings.declare(value, type);
  parts_.origins.declare(value);
  proof_.declare(value, type, own);
}

AxisSet SecondPass::drifted(const ir::Param &buffer, const Type &type) const {
  AxisSet axes =
      rules::axes_of(program_, buffer.drifted, type.mesh()) - gradual_.cuts().owned(buffer.value);
  for (AxisId axis : axes)
    if (type.dim(axis) || gradual_.cuts().dim(buffer.value, axis) ||
        !gradual_.updates().reads_for_update(buffer.value))
      axes -= axis;
  return axes;
}

void SecondPass::begin(const ir::Inst &inst, const rules::ResolvedOp &op) {
  operands_.begin(inst);
  parts_.begin();
  parts_.means.take_counts(inst, op);
  parts_.means.add_to_means(op);
  parts_.one_rank.add(inst, op);
  parts_.zeros.scale_zeros();
  parts_.zeros.take_cleared(op, [&](ValueId value) { return parts_.one_rank.is_mask(value); });
  parts_.gradients.take_shares(inst, op);
  parts_.gradients.take_own_block(inst, op);
  parts_.norms.take_squares(inst, op);
  parts_.gradients.take_joined_counts(op);
  parts_.one_rank.hand_in(inst, op);
  parts_.gradients.take_gradients(inst, op, parts_.one_rank.axes());
  parts_.root.judge_handed_out(inst, op);
}

void SecondPass::bind(const ir::Inst &inst, const rules::Application &app) {
  operands_.find_unread(app);
  parts_.zeros.take_stated(app);
  parts_.root.take_root(app);
  parts_.experts.take_rows(inst, app);
  operands_.find_parts(app, parts_.zeros);
  parts_.lookups.take_offset_operands(app);
  parts_.own_counts.take_own_numbers(app);
  parts_.rings.follow_ring(inst, app);
  operands_.take_stretched(
      app, [&](ValueId value, unsigned dim) { return parts_.numbers.has_own(value, dim); });
  operands_.doubt_single_rows(app);
  operands_.take_slots(app);
  operands_.take_overwritten();
}

// What is known already needs no such word, and the data are as they were.
std::optional<rules::Outcome> SecondPass::restated(const ir::Inst &inst,
                                                   const rules::Application &app) {
  if (!Gradual::only_restates(app))
    return std::nullopt;
  rules::Outcome outcome;
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    const rules::TensorInfo &from = state_.args[std::min<size_t>(i, state_.args.size() - 1)];
    Type type = program_.types[from.type];
    type.set_unknown(type.of(Kind::Varying) - type.sharded());
    outcome.types.push_back(state_.intern(type));
    outcome.shapes.push_back(from.shape);
    outcome.sizes.push_back(from.sizes);
  }
  return outcome;
}

// Each step sees which axes those ahead of it have left open, or have reported.
void SecondPass::judge(InstId id, const rules::Application &app) {
  llvm::SmallVector<ValueId, 2> results;
  for (uint32_t r = 0; r < program_.insts[id].result_count; ++r)
    results.push_back(program_.insts[id].result(r));
  parts_.joined.judge_order(id, app);
  parts_.rings.find_sent(app);
  parts_.numbers.judge_rate(id, app);
  parts_.root.judge(app);
  parts_.origins.judge(id, app);
  parts_.lookups.judge(id, app);
  parts_.zeros.find_padded(app);
  parts_.numbers.judge_positions(id, app, results);
  parts_.numbers.judge_draws(id, app, results);
  parts_.own_counts.judge_extremes(app);
  parts_.edges.judge(id, app);
  parts_.rings.judge(id, app);
  parts_.own_counts.judge_selected(app);
  parts_.one_rank.judge(app, parts_.zeros);
  parts_.own_counts.judge_logs(id, app);
  parts_.joined.judge(app, results);
  parts_.norms.judge(id, app, results);
}

void SecondPass::complete(InstId id, const ir::Inst &inst, uint32_t index, Type &type) {
  const ValueId value = inst.result(index);
  const rules::ResolvedOp &op = state_.rules.resolve(inst.op);
  const AxisSet zero = type.zero(), pending = type.of(Kind::Partial);
  parts_.origins.keep(inst, value);
  parts_.gradients.keep_shared(inst, value);
  parts_.gradients.keep_alike(inst, value);
  operands_.find_left_slots(value, type);
  parts_.own_counts.keep_own(value, type);
  if (index == 0)
    parts_.learn(value, pending);
  parts_.lookups.cut_rows(type);
  parts_.joined.cut_joined(index, type);
  const Type before = type;
  cuts_.take_known(op.row, value, type);
  parts_.joined.keep(index, type);
  parts_.numbers.keep(value, before, type);
  for (AxisId axis : parts_.now.parts &(type.of(Kind::Varying) - type.sharded()))
    cut(type, axis, 0);
  parts_.zeros.keep(inst, value, zero, type);
  cuts_.keep_addends(op, index, inst.result_count, type);
  if (parts_.norms.keep(value, index, type))
    parts_.lookups.keep_addends(value, type);
  parts_.lookups.keep_offsets(value, index, type);
  if (index == 0) {
    parts_.edges.keep_blocks(type);
    parts_.one_rank.keep(op, type);
  }
  parts_.one_rank.follow(id, value, type);
  parts_.own_counts.keep_picked(value, type);
  parts_.zeros.keep_padded(type);
  complete_scale(id, type);
  cuts_.restore(value, type);
  parts_.rings.keep_sent(value, index, type);
  // What another rank sends may have been divided by anything.
  if (parts_.now.scale_open || op.boundary == rules::Boundary::Recv)
    type.scale = ir::ScaleId();
  parts_.rings.keep_scale(op, type);
  parts_.edges.keep_known(index, type);
  parts_.rings.keep_known(index, type);
  parts_.gradients.keep_equal(inst, value, type);
  parts_.means.follow(id, value, index);
  parts_.weights.follow(inst, value);
  parts_.doubts.follow(id, value);
  parts_.experts.keep(id, value, index, type);
  const std::optional<Type> seen = parts_.root.seen(id, type);
  proof_.prove(id, value, index, seen.value_or(type));
  operands_.learn_slots(op, value, type);
  if (seen)
    parts_.root.keep(value, *seen, type);
  parts_.root.follow_gradient(value);
}

// Numbers of the program that are sizes of axes, and counts of the ranks.
void SecondPass::complete_scale(InstId id, Type &type) {
  const std::optional<ir::ScaleId> numbers = gradual_.numbers().scale(id, state_.result.types);
  parts_.now.scale_open |=
      !numbers || (parts_.own_counts.counts() && gradual_.numbers().is_mean(id));
  type.scale = ir::product(program_, type.scale, numbers.value_or(program_.one()));
  type.scale = ir::product(program_, type.scale, parts_.means.count_scale());
}

} // namespace spmd::checker
