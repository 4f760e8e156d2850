// What is known of operands before a rule sees them.
#include "checker/gradual/second_pass/second_pass.h"

#include "checker/definitions.h"
#include "checker/walk/gradients/search.h"

#include "rules/bind.h"
#include "rules/shards/remesh.h"
#include "rules/transitions/call.h"

#include "ir/claims.h"
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
    if (op.computes(Computes::Sum) && operands.size() == 2) { // of two micro-batches
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
static void take_gradients(WalkState &state, const ir::Inst &inst, const rules::ResolvedOp &op,
                           AxisSet alone) {
  const bool reduces =
      op.form == rules::OpForm::Transition && rules::unstated_words(op.transition).reduces;
  if (is_forward(inst) || !(reduces || op.transition == rules::TransitionOp::Broadcast))
    return;
  const rules::Application app{state.program,        op,         inst.attrs, inst.context,
                               state.operands.slots, state.args, {}};
  rules::Outcome ignored;
  const std::optional<rules::TransitionCall> call = rules::read_call(app, ignored);
  const ir::Combiner by = call ? call->combiner.value_or(ir::Combiner::Sum) : ir::Combiner::Sum;
  if (!call || (reduces && by != ir::Combiner::Max && by != ir::Combiner::Min))
    return;
  for (size_t i = 0; i < state.args.size() && i < state.operands.values.size(); ++i) {
    size_t steps = kReach;
    const ValueId param = parameter_of_gradient(state.program, state.operands.values[i], steps);
    Type type = state.program.types[state.args[i].type];
    if (!param.valid())
      continue;
    const Type &of = state.program.types[state.result.types[param.index]];
    const AxisSet loose = type.unknown | (type.of(Kind::Varying) - type.sharded());
    if (of.mesh() == type.mesh())
      type.set_kind((loose & of.of(Kind::Replicate) & call->axes.all()) - alone, Kind::Partial);
    state.args[i].type = state.intern(type);
  }
}

void SecondPass::begin(const ir::Inst &inst, const rules::ResolvedOp &op) {
  now_ = {};
  const InstId forward = inst.bwd_of.valid() ? defining_inst(program_, inst.bwd_of) : InstId();
  now_.takes_block =
      forward.valid() &&
      state_.rules.resolve(program_.insts[forward].op).transition == rules::TransitionOp::Convert;
  take_counts(inst, op);
  add_to_means(op);
  add_alone(inst, op);
  scale_zeros();
  take_cleared(op);
  take_shares(inst, op);
  take_squares(inst, op);
  take_joined_counts(op);
  hand_in(inst, op);
  take_gradients(state_, inst, op, alone_axes_);
  judge_handed_out(inst, op);
}

// The operand with which a result of a loop begins, if it is one that all turns hand on.
std::optional<uint32_t> SecondPass::carry_of(const ir::Inst &inst, uint32_t result) const {
  const ir::AttrValue *same = program_.find(inst.attrs, "consts"),
                      *carries = program_.find(inst.attrs, "carry");
  if (!same || !carries || same->form != ir::AttrForm::Integer ||
      carries->form != ir::AttrForm::Integer || int64_t(result) >= carries->as_integer())
    return std::nullopt;
  return static_cast<uint32_t>(same->as_integer()) + result;
}

// What a loop takes in each of its turns is to its body what it is to the loop. What begins with
// zeros has the scale of what is added to it.
void SecondPass::hand_in(const ir::Inst &inst, const rules::ResolvedOp &op) {
  const ir::AttrValue *same = program_.find(inst.attrs, "consts");
  if (op.form != rules::OpForm::Call || !same || same->form != ir::AttrForm::Integer)
    return;
  for (const ir::Attr &attr : program_.attrs[inst.attrs].attrs) {
    if (attr.value.form != ir::AttrForm::Function)
      continue;
    const ir::Function &body = program_.functions[attr.value.as<ir::FunctionId>()];
    const auto &values = state_.operands.values;
    for (size_t i = 0; i < body.params.size() && body.params.size() == values.size(); ++i)
      if (static_cast<int64_t>(i) < same->as_integer())
        alone_.learn(body.params[i].value, {alone_.mask(values[i]), {}, {}});
      else
        result_.scaled[body.params[i].value.index] |= program_.types[state_.args[i].type].zero();
  }
}

// A number that is put beside addends, such as how many samples a rank has beside sums over them,
// is added up with them.
void SecondPass::take_joined_counts(const rules::ResolvedOp &op) {
  if (!op.row || op.row->factors != rules::cat_factors)
    return;
  AxisSet pending;
  std::optional<ir::ScaleId> scale;
  for (const rules::Arg &arg : state_.args) {
    const Type &type = program_.types[arg.type];
    if (AxisSet axes = type.of(Kind::Partial) - type.zero() - type.unknown) {
      pending |= axes;
      scale = type.scale;
    }
  }
  for (size_t i = 0; scale && i < state_.args.size(); ++i) {
    const ir::Param *param = program_.find_param(storage_of(program_, state_.operands.values[i]));
    if (!param || param->role != ir::Role::Const)
      continue;
    Type type = program_.types[state_.args[i].type];
    type.set_kind(pending & type.equal(), Kind::Partial);
    type.scale = *scale;
    state_.args[i].type = state_.intern(type);
  }
}

// Equal on n ranks, and divided by n before the sum or after it: an addend on each, which an
// all_reduce makes one of again. So is the gradient of what is equal, where each rank has a loss of
// its own.
void SecondPass::take_shares(const ir::Inst &inst, const rules::ResolvedOp &op) {
  if (op.form != rules::OpForm::Transition || !rules::unstated_words(op.transition).reduces)
    return;
  rules::Application app{program_,    op, inst.attrs, inst.context, state_.operands.slots,
                         state_.args, {}};
  rules::Outcome ignored;
  std::optional<rules::TransitionCall> call = rules::read_call(app, ignored);
  if (!call || call->combiner.value_or(ir::Combiner::Sum) != ir::Combiner::Sum)
    return;
  const AxisSet axes = call->axes.all(), gradient = addends_of_gradient(inst);
  for (size_t i = 0; i < state_.args.size(); ++i) {
    Type type = program_.types[state_.args[i].type];
    const AxisSet same = (type.equal() - type.zero()) & axes;
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
AxisSet SecondPass::addends_of_gradient(const ir::Inst &inst) const {
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

// The root of a rank's own squares, which are added up over one axis after the other.
void SecondPass::take_squares(const ir::Inst &inst, const rules::ResolvedOp &op) {
  if (op.form != rules::OpForm::Equation || inst.result_count != 1 || state_.args.empty())
    return;
  const rules::Application app{program_,    op, inst.attrs, inst.context, state_.operands.slots,
                               state_.args, {}};
  Type type = program_.types[state_.args[0].type];
  type.set_kind(norms_.rooted(app, state_.operands.values[0], inst.result(0)) &
                    type.of(Kind::Partial),
                Kind::Varying);
  state_.args[0].type = state_.intern(type);
}

AxisSet SecondPass::unknown_operands() const {
  AxisSet axes;
  for (const rules::Arg &arg : state_.args)
    axes |= program_.types[arg.type].unknown;
  return axes;
}

// The axes that an attribute names.
AxisSet SecondPass::axes_in(const ir::Inst &inst, llvm::StringRef key) const {
  AxisSet axes;
  const ir::AttrValue *value = program_.find(inst.attrs, key);
  auto add = [&](const ir::AttrValue &name) {
    if (name.form == ir::AttrForm::String)
      axes |= rules::axes_named(program_, program_.contexts[inst.context].mesh,
                                {{}, name.as<ir::StringId>()})
                  .value_or(AxisSet());
  };
  if (value && value->form == ir::AttrForm::List)
    llvm::for_each(program_.lists[value->as<ir::AttrListId>()].items, add);
  else if (value)
    add(*value);
  return axes;
}

// The number of a rank's own elements divides its own sums: a mean for each rank. Whether all ranks
// have as many is for a recorder to see. Multiplied with it the mean is the sum again.
void SecondPass::take_counts(const ir::Inst &inst, const rules::ResolvedOp &op) {
  now_.count_scale = program_.one();
  now_.uneven = axes_in(inst, "counts_differ");
  now_.divided = now_.uneven | axes_in(inst, "counts_equal");
  const bool divides = op.computes(Computes::Quotient), multiplies = op.computes(Computes::Product);
  if (!(divides || multiplies) || state_.args.size() != 2 || !state_.args[1].shape.valid())
    return;
  Type type = program_.types[state_.args[1].type];
  if (const ir::Param *number = program_.find_param(state_.operands.values.back());
      divides && number && number->role == ir::Role::Const && is_number(number->value)) {
    // Each rank has another one, such as the number of its own tokens: addends remain addends.
    const AxisSet own =
        type.of(Kind::Varying) & program_.types[state_.args[0].type].of(Kind::Partial);
    now_.uneven |= own;
    now_.divided |= own;
    now_.open |= own;
    type.set_kind(own, Kind::Replicate);
    state_.args[1].type = state_.intern(type);
  }
  AxisSet pending = type.of(Kind::Partial) - type.zero() - type.unknown;
  if (multiplies)
    pending &= means_.lookup(state_.operands.values[0].index).axes;
  if (!pending || !is_number(state_.args[1].shape) || !type.gradient_free())
    return;
  const ir::ScaleId ranks = ir::axes_scale(program_, type.mesh(), pending);
  now_.count_scale = divides ? ranks : ir::quotient(program_, program_.one(), ranks);
  // The backward divides by the same number, of which only the forward says what it is.
  const ValueId count = state_.operands.values.back();
  const AxisSet equal = axes_in(inst, "counts_equal") | equal_counts_.lookup(count.index);
  equal_counts_[count.index] = equal;
  if (divides)
    now_.open |= pending - equal;
  now_.divided |= divides ? pending : AxisSet();
  type.set_kind(pending, Kind::Replicate);
  state_.args[1].type = state_.intern(type);
}

// Each rank's mean counts once per rank, and so does what is equal on all ranks and added to it: an
// average over them is right for both. So is a sum for addends and a share of what is equal.
void SecondPass::add_to_means(const rules::ResolvedOp &op) {
  if (!(op.computes(Computes::Sum) || op.computes(Computes::Difference)) || state_.args.size() != 2)
    return;
  for (size_t mean : {0, 1}) {
    const Type &of = program_.types[state_.args[mean].type];
    Type other = program_.types[state_.args[1 - mean].type];
    const AxisSet equal = other.equal() - other.zero();
    const ir::ScaleId times = ir::quotient(program_, of.scale, other.scale);
    if (!times.valid() || of.mesh() != other.mesh())
      continue;
    for (AxisId axis : of.of(Kind::Partial) & equal & ~of.zero() & ~of.unknown)
      if (ir::exponent_of(program_, times, of.mesh(), axis) == 1) {
        other.set_kind(axis, Kind::Partial);
        other.scale =
            ir::product(program_, other.scale, ir::axis_scale(program_, other.mesh(), axis));
      }
    state_.args[1 - mean].type = state_.intern(other);
  }
}

// What one rank alone adds to a sum, and all would add alike, is an addend: the others have zeros.
void SecondPass::add_alone(const ir::Inst &inst, const rules::ResolvedOp &op) {
  AxisSet axes = axes_in(inst, "alone");
  if (!axes || !op.computes(Computes::Sum) || state_.args.size() != 2)
    return;
  Type type = program_.types[state_.args[1].type];
  const AxisSet equal = type.equal() - type.zero();
  type.set_unknown(axes - equal - type.zero());
  type.set_kind(axes & equal, Kind::Partial);
  state_.args[1].type = state_.intern(type);
}

// Blocks of zeros are of the scale of what they are put together with.
void SecondPass::scale_zeros() {
  if (zero_blocks_.empty())
    return;
  auto is_zero = [&](size_t i) { return zero_blocks_.count(state_.operands.values[i].index) != 0; };
  std::optional<ir::ScaleId> scale;
  for (size_t i = 0; i < state_.args.size() && !scale; ++i)
    if (ir::ShapeId shape = state_.args[i].shape;
        !is_zero(i) && shape.valid() && ir::differentiable(program_.shapes[shape].dtype))
      scale = program_.types[state_.args[i].type].scale;
  for (size_t i = 0; i < state_.args.size() && scale; ++i)
    if (is_zero(i)) {
      Type type = program_.types[state_.args[i].type];
      type.scale = *scale;
      state_.args[i].type = state_.intern(type);
    }
}

// Memory that was cleared, and to which something is added, holds that alone: zeros are of its
// type.
void SecondPass::take_cleared(const rules::ResolvedOp &op) {
  if (!op.computes(Computes::Sum) || state_.args.size() != 2)
    return;
  auto cleared = [&](size_t i) { return zero_blocks_.count(state_.operands.values[i].index) != 0; };
  for (size_t i : {0, 1})
    if (cleared(i) && !cleared(1 - i) && state_.args[0].shape == state_.args[1].shape)
      state_.args[i].type = state_.args[1 - i].type;
}

// What is known already needs no such word, and the data are as they were.
std::optional<rules::Outcome> SecondPass::restated(const ir::Inst &inst,
                                                   const rules::Application &app) {
  if (!Gradual::only_restates(app))
    return std::nullopt;
  rules::Outcome outcome;
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    const rules::Arg &from = state_.args[std::min<size_t>(i, state_.args.size() - 1)];
    Type type = program_.types[from.type];
    type.set_unknown(type.of(Kind::Varying) - type.sharded());
    outcome.types.push_back(state_.intern(type));
    outcome.shapes.push_back(from.shape);
    outcome.sizes.push_back(from.sizes);
  }
  return outcome;
}

} // namespace spmd::checker
