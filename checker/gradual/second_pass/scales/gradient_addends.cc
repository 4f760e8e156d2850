// Where each rank has a part of a gradient, and where each has the whole.
#include "checker/gradual/second_pass/scales/gradient_addends.h"

#include "checker/program_queries.h"
#include "checker/walk/gradients/backward_slice.h"

#include "rules/apply.h"
#include "rules/shards/remesh.h"
#include "rules/transitions/call.h"

#include "ir/mesh/axis_scale.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;
using rules::Computes;

// The parameter of which a value is the gradient that backward passes have left, by other names of
// it. `steps`: how many instructions may be looked at.
static ValueId parameter_of_gradient(const ir::Program &program, ValueId value, size_t &steps) {
  for (; steps != 0; --steps) {
    const ValueId of = program.values[value].grad_of;
    if (const ir::Param *param = of.valid() ? program.find_param(of) : nullptr)
      return param->role == ir::Role::Param ? of : ValueId();
    const InstId made = defining_inst(program, value);
    if (!made.valid())
      break;
    const llvm::SmallVector<ValueId, 4> operands = tensors_of(program, made);
    const rules::ResolvedOp op = op_of(program, made);
    if (op.computes(Computes::Add) && operands.size() == 2) { // of two micro-batches
      const ValueId one = parameter_of_gradient(program, operands[1], --steps);
      return one.valid() && one == parameter_of_gradient(program, operands[0], steps) ? one
                                                                                      : ValueId();
    }
    if (operands.size() != 1 || (op.transition != rules::TransitionOp::None &&
                                 op.transition != rules::TransitionOp::Reinterpret))
      break;
    value = operands[0];
  }
  return {};
}

// Each rank has an addend of the gradient of a parameter that all use for data of their own,
// whatever else of it is unknown: one of them, or the greatest, is not the sum.
void GradientAddends::take_gradients(const ir::Inst &inst, const rules::ResolvedOp &op,
                                     AxisSet alone) {
  const bool reduces =
      op.form == rules::OpForm::Transition && rules::unstated_words(op.transition).reduces;
  if (is_forward(inst) || !(reduces || op.transition == rules::TransitionOp::Broadcast))
    return;
  const rules::Application app = application(inst, op);
  rules::Outcome ignored;
  const std::optional<rules::TransitionCall> call = rules::read_call(app, ignored);
  const ir::Combiner by = call ? call->combiner.value_or(ir::Combiner::Sum) : ir::Combiner::Sum;
  if (!call || (reduces && by != ir::Combiner::Max && by != ir::Combiner::Min))
    return;
  for (size_t i = 0; i < state_.args.size() && i < state_.operands.values.size(); ++i) {
    size_t steps = kReach;
    const ValueId param = parameter_of_gradient(program_, state_.operands.values[i], steps);
    Type type = program_.types[state_.args[i].type];
    if (!param.valid())
      continue;
    const Type &of = program_.types[result_.types[param.index]];
    const AxisSet loose = type.unknown | (type.of(Kind::Varying) - type.sharded());
    if (of.mesh() == type.mesh())
      type.set_kind((loose & of.of(Kind::Replicate) & call->axes.all()) - alone, Kind::Partial);
    state_.args[i].type = state_.intern(type);
  }
}

// Where all ranks have one loss, each has the whole gradient of what it was computed of, which
// counts as its addend of as many such gradients as there are ranks. The block that a rank cuts out
// of it, as of what was gathered from all, is its block of the whole.
void GradientAddends::take_own_block(const ir::Inst &inst, const rules::ResolvedOp &op) {
  if (op.transition != rules::TransitionOp::Convert || is_forward(inst) || state_.args.size() != 1)
    return;
  Type type = program_.types[state_.args[0].type];
  const AxisSet axes = alike_.lookup(state_.operands.values[0].index) & type.of(Kind::Partial) &
                       rules::named_axes(application(inst, op));
  for (AxisId axis : axes) {
    type.set_kind(axis, Kind::Replicate);
    const ir::ScaleId ranks = ir::axis_scale(program_, type.mesh(), axis);
    type.scale = ir::quotient(program_, type.scale, ranks);
  }
  if (axes.empty())
    return;
  state_.args[0].type = state_.intern(type);
  own_blocks_.insert(inst.first_result.index);
}

// A number that is put beside addends, such as how many samples a rank has beside sums over them,
// is added up with them.
void GradientAddends::take_joined_counts(const rules::ResolvedOp &op) {
  if (!op.row || (op.row->factors != rules::cat_factors && op.row->factors != rules::stack_factors))
    return;
  AxisSet pending;
  std::optional<ir::ScaleId> scale;
  for (const rules::TensorInfo &arg : state_.args) {
    const Type &type = program_.types[arg.type];
    if (AxisSet axes = type.of(Kind::Partial) - type.zero() - type.unknown) {
      pending |= axes;
      scale = type.scale;
    }
  }
  for (size_t i = 0; scale && i < state_.args.size(); ++i) {
    const ir::Param *param = program_.find_param(storage_of(program_, state_.operands.values[i]));
    const ir::ShapeId shape = state_.args[i].shape;
    const bool is_one = shape.valid() && ir::element_count(program_.shapes[shape]) == 1;
    if (!param || param->role != ir::Role::Const || !is_one)
      continue;
    Type type = program_.types[state_.args[i].type];
    const AxisSet own = type.of(Kind::Varying) - type.sharded();
    type.set_kind(pending & (type.same_on_all_ranks() | own), Kind::Partial);
    type.scale = *scale;
    state_.args[i].type = state_.intern(type);
  }
}

// Whether autograd has made a sum of one that stands at the same place in the forward.
bool GradientAddends::is_transpose(const ir::Inst &inst) {
  const ir::LocId loc = inst.loc;
  const ir::FrameId frame = loc.valid() ? program_.locs[loc].frame : ir::FrameId();
  if (!frame.valid() || inst.bwd_of.valid())
    return false;
  if (inst.phase != ir::Phase::Backward)
    sums_.insert(frame.index);
  return inst.phase == ir::Phase::Backward && sums_.contains(frame.index);
}

// The axes over which tensors are averaged behind a backward.
AxisSet GradientAddends::averaged() {
  if (averaged_)
    return *averaged_;
  averaged_ = AxisSet();
  bool behind = false;
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    const rules::ResolvedOp &op = state_.rules.resolve(inst.op);
    behind |= inst.phase == ir::Phase::Backward;
    if (behind && inst.phase != ir::Phase::Backward && inst.result_count == 1 &&
        op.form == rules::OpForm::Transition && rules::unstated_words(op.transition).reduces &&
        !is_scalar(gradual_.by_kinds().shapes[inst.first_result.index]))
      *averaged_ |=
          gradual_.numbers().averaged(inst.first_result, program_.contexts[inst.context].mesh);
  }
  return *averaged_;
}

// Equal on n ranks, and divided by n before the sum or after it: an addend on each, which an
// all_reduce makes one of again. So is the gradient of what is equal, where each rank has a loss of
// its own; and so is that of a sum in JAX, whose transpose within a shard_map is a sum again and as
// many times too large as there are ranks: an average of the gradients is right then. Where none is
// averaged it is wrong at once.
void GradientAddends::take_shares(const ir::Inst &inst, const rules::ResolvedOp &op) {
  if (op.form != rules::OpForm::Transition || !rules::unstated_words(op.transition).reduces)
    return;
  const rules::Application app = application(inst, op);
  rules::Outcome ignored;
  std::optional<rules::TransitionCall> call = rules::read_call(app, ignored);
  if (!call || call->combiner.value_or(ir::Combiner::Sum) != ir::Combiner::Sum)
    return;
  const AxisSet axes = call->axes.all();
  const AxisSet gradient =
      addends_of_gradient(inst) | (is_transpose(inst) ? axes & averaged() : AxisSet());
  for (size_t i = 0; i < state_.args.size(); ++i) {
    Type type = program_.types[state_.args[i].type];
    const AxisSet same = (type.same_on_all_ranks() - type.zero()) & axes;
    AxisSet addends = gradient;
    if (i < inst.result_count)
      addends |= gradual_.numbers().averaged(inst.result(static_cast<uint32_t>(i)), type.mesh());
    for (AxisId axis : same)
      if (type.scale.valid() && ir::exponent_of(program_, type.scale, type.mesh(), axis) < 0)
        addends |= axis;
    for (AxisId axis : same &addends) {
      type.set_kind(axis, Kind::Partial);
      type.scale = ir::product(program_, type.scale, ir::axis_scale(program_, type.mesh(), axis));
    }
    state_.args[i].type = state_.intern(type);
  }
}

// In the backward of a sum whose result may be used by each rank for itself: the axes along which
// each has a loss of its own.
AxisSet GradientAddends::addends_of_gradient(const ir::Inst &inst) const {
  const InstId forward = inst.bwd_of.valid() ? defining_inst(program_, inst.bwd_of) : InstId();
  if (!forward.valid())
    return {};
  const rules::ResolvedOp &op = state_.rules.resolve(program_.insts[forward].op);
  if (op.form != rules::OpForm::Transition || !rules::unstated_words(op.transition).reduces)
    return {};
  AxisSet axes = program_.types[result_.types[inst.bwd_of.index]].replicated();
  for (const ir::Output &output : program_.outputs)
    if (output.role == ir::OutputRole::Loss) {
      const Type &loss = program_.types[gradual_.by_kinds().types[output.value.index]];
      axes &= loss.of(Kind::Varying) | (loss.of(Kind::Partial) - loss.zero());
    }
  return axes;
}

// Where all ranks have one loss, the gradient of it is equal on all, and so are numbers times it.
void GradientAddends::keep_shared(const ir::Inst &inst, ValueId value) {
  const rules::ResolvedOp &op = state_.rules.resolve(inst.op);
  const llvm::ArrayRef<ValueId> values = state_.operands.values;
  if (!inst.bwd_of.valid() || values.empty())
    return;
  const Type &first = program_.types[result_.types[values[0].index]];
  const bool begins =
      op.transition == rules::TransitionOp::Reinterpret && first.same_on_all_ranks();
  const bool handed_on =
      (is_product(op) || moves_elements(op)) &&
      llvm::all_of(values, [&](ValueId each) { return shared_.contains(each.index); });
  if (begins || handed_on)
    shared_.insert(value.index);
}

// What is computed of addends that are equal on all ranks, and of what all ranks have, is equal.
void GradientAddends::keep_alike(const ir::Inst &inst, ValueId value) {
  const rules::ResolvedOp &op = state_.rules.resolve(inst.op);
  if (op.form == rules::OpForm::Equation && !is_forward(inst) &&
      llvm::any_of(state_.operands.values,
                   [&](ValueId each) { return own_blocks_.contains(each.index); }))
    own_blocks_.insert(value.index);
  const bool begins = op.transition == rules::TransitionOp::Reinterpret;
  if (is_forward(inst) || (op.form != rules::OpForm::Equation && !begins) ||
      (begins && !inst.bwd_of.valid()))
    return;
  AxisSet axes = begins ? rules::named_axes(application(inst, op)) : AxisSet(), some = axes;
  for (size_t i = 0; i < state_.operands.values.size() && i < state_.args.size(); ++i) {
    const AxisSet alike = alike_.lookup(state_.operands.values[i].index);
    const Type &type = program_.types[state_.args[i].type];
    const AxisSet equal = alike | (type.same_on_all_ranks() - type.unknown);
    axes = i == 0 && !begins ? equal : axes & equal;
    some |= alike;
  }
  if (axes & some)
    alike_[value.index] = axes & some;
}

// Where each rank has a loss of its own, a term of it that is equal on all ranks, as one that keeps
// weights small, gets the same gradient on each: an addend, as of what is summed over the ranks.
void GradientAddends::keep_equal(const ir::Inst &inst, ValueId value, Type &type) {
  const rules::ResolvedOp &op = state_.rules.resolve(inst.op);
  const bool transits = op.form == rules::OpForm::Transition;
  const rules::Application app = application(inst, op);
  const AxisSet axes = transits ? rules::named_axes(app) : AxisSet();
  if (!inst.bwd_of.valid()) {
    AxisSet summed = app.attr("dst") ? AxisSet() : axes;
    for (ValueId operand : state_.operands.values)
      summed |= summed_.lookup(operand.index);
    // What meets what each rank uses for itself is used so, too.
    for (ValueId operand : summed && !transits ? state_.operands.values : llvm::ArrayRef<ValueId>())
      if (const Type &other = program_.types[result_.types[operand.index]]; is_float(operand))
        summed -= other.replicated() - other.either() - summed_.lookup(operand.index);
    if (summed)
      summed_[value.index] = summed;
    return;
  }
  AxisSet equal;
  if (op.transition == rules::TransitionOp::Reinterpret) {
    equal = axes;
  } else if (op.form != rules::OpForm::Transition) {
    for (ValueId operand : state_.operands.values)
      equal |= equal_.lookup(operand.index);
  }
  equal &= type.same_on_all_ranks() - type.zero();
  const ValueId of = program_.values[value].grad_of;
  const ir::TypeId whose = of.valid() ? result_.types[of.index] : ir::TypeId();
  if (whose.valid() && program_.types[whose].mesh() == type.mesh()) {
    // What a sum over ranks made may be used by all of them as one, if nothing decides that.
    const Type &seen = program_.types[whose],
               &first = program_.types[gradual_.by_kinds().types[of.index]];
    const AxisSet decided = (first.replicated() - first.either()) |
                            (seen.replicated() - seen.either() - summed_.lookup(of.index));
    for (AxisId axis : equal &seen.replicated() & decided & ~first.either()) {
      type.set_kind(axis, Kind::Partial);
      if (type.scale.valid())
        type.scale = ir::product(program_, type.scale, ir::axis_scale(program_, type.mesh(), axis));
      equal -= axis;
    }
  }
  if (equal)
    equal_[value.index] = equal;
}

} // namespace spmd::checker
