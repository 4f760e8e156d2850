// Whose blocks an instruction has at each turn of a ring, and what is wrong with that.
#include "checker/gradual/second_pass/blocks/ring_blocks.h"

#include "checker/program_queries.h"
#include "checker/walk/gradients/backward_slice.h"

#include "rules/apply.h"
#include "rules/shards/remesh.h"
#include "rules/transitions/call.h"
#include "rules/violations/diagnostic_info.h"
#include "rules/violations/steps/rings.h"

#include "ir/mesh/axis_scale.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;
using rules::Computes;

// Sums over a rank's own block and over those that others have sent it: after all turns of a ring
// they are the sum of all blocks, which each rank then has, and before that nothing is known.
void RingBlocks::find_sent(const rules::Application &app) {
  const bool adds = app.op.computes(Computes::Add) || app.op.computes(Computes::Sub);
  AxisSet pending;
  received_ = sums_received_ = AxisSet();
  if (app.op.transition == rules::TransitionOp::CollectivePermute)
    received_ = rules::communicated_axes(app);
  for (ValueId operand : state_.operands.values)
    received_ |= made_of_sent_.lookup(operand.index);
  for (const rules::TensorInfo &arg : app.args) {
    const AxisSet now = app.type(arg).of(Kind::Partial) - app.type(arg).zero();
    sums_received_ |= adds ? received_ & pending & now : AxisSet();
    pending |= now;
  }
}

// Blocks that go round the ranks of an axis.
void RingBlocks::follow_ring(const ir::Inst &inst, const rules::Application &app) {
  if (inst.result_count == 0 || rings_.empty())
    return;
  const auto &values = state_.operands.values;
  llvm::SmallVector<bool, 8> unread;
  llvm::SmallVector<AxisSet, 8> proved;
  for (uint32_t i = 0; i < values.size(); ++i) {
    unread.push_back(now_.unread.contains(i));
    proved.push_back(result_.proved[values[i].index]);
  }
  ring_ = rings_.infer(defining_inst(program_, inst.first_result), app, values, unread, proved);
}

void RingBlocks::judge(InstId id, const rules::Application &app) {
  if (rings_.empty())
    return;
  const rules::OperandIndex operand{ring_.operand};
  const AxisSet axes = AxisSet(ring_.axis) - now_.reported;
  const bool mixed = ring_.fault == Rings::Fault::Mixed && axes;
  const bool again = mixed && !is_first_at(id, mixed_at_);
  if (mixed && mixed_.contains(axes) && (again || !is_forward(program_.insts[id])))
    ; // another turn of what was reported, or its backward
  else if (mixed)
    state_.report(Place::inst(id), rules::MixedBlocks{operand, ring_.back, ring_.other, axes});
  else if (ring_.fault == Rings::Fault::Missing && axes)
    state_.report(Place::inst(id), rules::MissingBlock{operand, ring_.back, axes});
  else if (ring_.fault == Rings::Fault::Repeated && axes)
    state_.report(Place::inst(id), rules::RepeatedBlock{operand, ring_.back, axes});
  else if (ring_.fault == Rings::Fault::Scaled && axes)
    state_.report(Place::inst(id), rules::UnlikeScales{operand, axes});
  if (mixed)
    mixed_ |= axes;
  rings_.learn(app, id, state_.operands.values, ring_);
  judge_gradient(id);
}

// Notes the line of an instruction; false where another one of the line was noted.
bool RingBlocks::is_first_at(InstId id, llvm::DenseSet<uint32_t> &lines) const {
  const ir::LocId loc = program_.insts[id].loc;
  const ir::FrameId frame = loc.valid() ? program_.locs[loc].frame : ir::FrameId();
  return !frame.valid() || lines.insert(frame.index).second;
}

void RingBlocks::judge_gradient(InstId id) {
  const ir::Inst &inst = program_.insts[id];
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    const ValueId of = program_.values[inst.result(r)].grad_of;
    if (!of.valid())
      continue;
    const auto astray = rings_.astray(inst.result(r), of, program_.types[result_.types[of.index]]);
    if (!astray || now_.reported.contains(astray->axis))
      continue;
    // All gradients that are made of what was sent so, and those of other layers, have one cause.
    const InstId cause = astray->by.valid() ? astray->by : id;
    if (!is_first_at(cause, astray_at_))
      continue;
    state_.report(Place::inst(cause), rules::GradientOfOtherBlock{of, astray->back, astray->wanted,
                                                                  AxisSet(astray->axis)});
  }
}

// What blocks of several ranks are made of says by what the result is off, where its rule, which
// sees no blocks, says nothing.
void RingBlocks::keep_scale(const rules::ResolvedOp &op, Type &type) const {
  if (type.scale.valid() || now_.scale_open || ring_.results.empty())
    return;
  const bool divides = op.computes(Computes::Div);
  const bool multiplies =
      op.computes(Computes::Mul) || (op.row && op.row->factors == rules::matmul_factors);
  const bool passes = op.computes(Computes::Add) || op.computes(Computes::Sub) ||
                      op.transition == rules::TransitionOp::CollectivePermute ||
                      moves_elements(op) || (op.row && op.row->factors == rules::cat_factors);
  std::optional<ir::ScaleId> scale;
  for (uint32_t i = 0; i < state_.args.size(); ++i) {
    const Type &of = program_.types[state_.args[i].type];
    if (of.zero().contains(ring_.axis) || now_.unread.contains(i))
      continue;
    if (!of.scale.valid())
      return;
    if (scale && (divides || multiplies))
      scale = divides ? ir::quotient(program_, *scale, of.scale)
                      : ir::product(program_, *scale, of.scale);
    else if (scale.value_or(of.scale) != of.scale)
      return;
    else
      scale = of.scale;
  }
  if (scale && (divides || multiplies || passes || *scale == program_.one()))
    type.scale = *scale;
}

void RingBlocks::keep_known(uint32_t index, Type &type) const {
  const Rings::Known *known = ring_.known(index);
  if (!known || now_.reported.contains(known->axis))
    return;
  type.drop_shards(AxisSet(known->axis));
  type.renumber_shard_orders();
  type.set_kind(known->axis, known->dim ? Kind::Varying : Kind::Replicate);
  if (known->dim)
    cut(type, known->axis, *known->dim);
}

void RingBlocks::begin() {
  ring_ = {};
  received_ = sums_received_ = {};
}

void RingBlocks::declare(ValueId value, const Type &type) {
  for (AxisId axis : type.sharded())
    if (!is_float(value) && gradual_.cuts().origin(value, axis) == Origin::Assumed)
      rings_.guess(value);
}

void RingBlocks::keep_sent(ValueId value, uint32_t index, Type &type) {
  const Rings::Known *known = ring_.known(index);
  AxisSet round = known ? AxisSet(known->axis) : AxisSet();
  if (const auto *block = edges_.gradient().known(index))
    round |= block->axis;
  if (const AxisSet sent = received_ - edges_.window().blocks() - round)
    made_of_sent_[value.index] = sent;
  type.set_unknown((sums_received_ & type.of(Kind::Partial)) - round);
}

} // namespace spmd::checker
