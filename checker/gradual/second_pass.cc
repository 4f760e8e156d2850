// Hooks of the walk: before a rule is applied, after it, at each result, and where something is
// reported.
#include "checker/gradual/second_pass.h"

#include "checker/definitions.h"
#include "checker/walk/gradients/search.h"

#include "rules/bind.h"
#include "rules/boundary/claims.h"
#include "rules/kinds/scale.h"
#include "rules/shapes/attrs.h"
#include "rules/shards/remesh.h"
#include "rules/transitions/call.h"
#include "rules/violations/claims.h"
#include "rules/violations/gradients.h"
#include "rules/violations/local.h"
#include "rules/violations/norms.h"
#include "rules/violations/operands.h"
#include "rules/violations/shards.h"
#include "rules/violations/steps/edges.h"
#include "rules/violations/steps/offsets.h"
#include "rules/violations/steps/positions.h"
#include "rules/violations/steps/rings.h"
#include "rules/violations/transitions.h"

#include "ir/claims.h"
#include "ir/mesh/axis_scale.h"
#include "ir/support/product.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;
using rules::Computes;

SecondPass::SecondPass(WalkState &state)
    : state_(state), program_(state.program), result_(state.result),
      gradual_(*state.result.gradual), norms_(program_), lookups_(offsets_, zero_blocks_),
      numbering_(program_, gradual_.cuts().positions(), gradual_.by_kinds()),
      windows_(program_, gradual_.by_kinds()),
      edge_gradients_(program_, gradual_.by_kinds(), windows_),
      rings_(program_, gradual_.by_kinds(), state.rules), alone_(offsets_),
      routes_(program_, gradual_.cuts(), zero_blocks_), roots_(program_) {
  result_.proved.resize(program_.values.size());
  result_.scaled.resize(program_.values.size());
  result_.own.resize(program_.values.size());
}

void SecondPass::declare(ValueId value, const Type &type) {
  const AxisSet own = gradual_.cuts().owned(value) & (type.of(Kind::Varying) - type.sharded());
  routes_.own(value, own);
  const AxisSet sample = gradual_.cuts().sample(value) & (type.of(Kind::Varying) - type.sharded());
  result_.proved[value.index] =
      (known_axes(type) | own | sample) - gradual_.copies().differing(value);
  // A number that a rank has counted, such as its tokens, is an addend of that of all, if of
  // anything.
  const ir::Param *param = program_.find_param(value);
  for (AxisId axis : type.sharded())
    if (!is_float(value) && gradual_.cuts().origin(value, axis) == Origin::Assumed)
      rings_.guess(value);
  if (param && (param->role == ir::Role::Const || param->role == ir::Role::Input))
    data_.insert(value.index);
  if (param && param->role == ir::Role::Buffer)
    buffers_.insert(value.index);
  if (param && param->role == ir::Role::Const && is_number(value))
    result_.proved[value.index] |= type.of(Kind::Varying);
  // Which rows of a fused weight a rank has taken, its type cannot tell. Those of a batch may be
  // any, and what each rank has made by itself has no other rows than those it is used for.
  for (AxisId axis : type.sharded())
    if (param && param->role == ir::Role::Param && gradual_.cuts().inside(value, axis) &&
        !rules::axes_of(program_, param->separate, type.mesh()).contains(axis) &&
        !has_taken(*param, type, axis))
      result_.proved[value.index] -= axis;
  result_.scaled[value.index] = result_.proved[value.index];
  if (param)
    for (AxisId axis : program_.meshes[type.mesh()].typed_axes() - result_.proved[value.index])
      result_.lost.push_back(
          {axis, {Place::Form::Param, static_cast<uint32_t>(param - program_.params.data())}});
}

// Whether a rank has taken, out of the whole of a fused weight, the blocks that it is used for.
bool SecondPass::has_taken(const ir::Param &param, const Type &type, AxisId axis) const {
  return rules::axes_of(program_, param.taken, type.mesh()).contains(axis) &&
         type.dim(axis) == static_cast<unsigned>(param.taken_dim) &&
         gradual_.cuts().blocks(param.value, axis) == param.taken_blocks;
}

AxisSet SecondPass::drifted(const ir::Param &buffer, const Type &type) const {
  AxisSet axes =
      rules::axes_of(program_, buffer.drifted, type.mesh()) - gradual_.cuts().owned(buffer.value);
  for (AxisId axis : axes)
    if (type.dim(axis) || gradual_.cuts().dim(buffer.value, axis) ||
        !gradual_.updates().are_made_by_reading(buffer.value))
      axes -= axis;
  return axes;
}

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
  const ir::Shape &shape = program_.shapes[state_.args[1].shape];
  if (!pending || !shape.ranked || !shape.dims.empty() || !type.gradient_free())
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

// The norm of a block asks for the scale that the norm of a whole tensor asks for.
static std::optional<rules::Violation> scale_of_norm(const rules::Application &app,
                                                     llvm::ArrayRef<ValueId> operands,
                                                     const Norms::Made &made, uint32_t result,
                                                     AxisSet reported) {
  const uint32_t i = app.results.size() > 1 ? result : 0;
  if (!made.root.axes || !app.op.computes(Computes::Norm) || i >= app.args.size())
    return std::nullopt;
  auto differs = rules::scale_differs(app.program, app.type(app.args[i]), app.program.one(),
                                      "1 is needed", {i}, operands[i]);
  return differs && !(rules::axes_of(*differs) & reported) ? std::move(differs) : std::nullopt;
}

// What the instruction makes of norms of blocks, and what is wrong with it.
// Blocks from inside of a dimension do not join to it in the order of the ranks.
void SecondPass::open_inside(InstId id, const rules::Application &app) {
  if (app.op.form != rules::OpForm::Transition || !(app.attr("dim") || app.attr("split_dim")))
    return;
  llvm::SmallVector<ValueId, 4> values(state_.operands.values.begin(),
                                       state_.operands.values.end());
  for (uint32_t r = 0; r < program_.insts[id].result_count; ++r)
    values.push_back(program_.insts[id].result(r));
  for (AxisId axis : rules::communicated_axes(app))
    if (llvm::any_of(values, [&](ValueId value) { return gradual_.cuts().inside(value, axis); }))
      now_.open |= axis;
}

void SecondPass::judge(InstId id, const rules::Application &app) {
  open_inside(id, app);
  find_sent(app);
  judge_rate(id, app);
  if (now_.on_root && app.op.transition == rules::TransitionOp::Reduce)
    now_.open -= now_.on_root->axis;
  // A buffer is that of the rank that hands out its own, whatever the others had.
  if (app.op.transition == rules::TransitionOp::Broadcast &&
      llvm::all_of(state_.operands.values,
                   [&](ValueId operand) { return buffers_.contains(operand.index); }))
    now_.open -= rules::communicated_axes(app);
  if (app.op.transition == rules::TransitionOp::Convert && !state_.operands.values.empty() &&
      data_.contains(state_.operands.values[0].index))
    shared_out_ |= rules::communicated_axes(app);
  judge_part_of_own(id, app);
  now_.norms.clear();
  judge_lookup(id, app);
  find_padded(app);
  llvm::SmallVector<ValueId, 2> made_values;
  for (uint32_t r = 0; r < program_.insts[id].result_count; ++r)
    made_values.push_back(program_.insts[id].result(r));
  for (const Numbering::Repeated &each :
       numbering_.repeated(app, state_.operands.values, made_values))
    if (AxisSet axes = each.axes - now_.reported;
        axes && is_forward(program_.insts[id]) &&
        numbered_.insert(state_.operands.values[each.operand].index).second)
      state_.report(Place::inst(id), rules::RepeatedPositions{{each.operand}, axes});
  numbering_.learn(app, state_.operands.values, made_values);
  now_.extreme = extremes_.made(app, state_.operands.values);
  now_.open = (now_.open - now_.extreme.own) | now_.extreme.mixed;
  judge_window(id, app);
  judge_edge_gradient(id, app);
  judge_ring(id, app);
  judge_selected(app);
  now_.alone = alone_.made(app, state_.operands.values);
  now_.own_log = own_logs_.made(app, state_.operands.values);
  if (AxisSet axes = now_.own_log.summed - now_.reported)
    state_.report(Place::inst(id),
                  rules::WrongSource{{0}, {.kind = Kind::Partial}, {.kind = Kind::Varying}, axes});
  now_.joined.clear();
  const Stacks &stacks = gradual_.cuts().positions().stacks();
  now_.exchanged = {};
  if (made_values.size() == 1 && stacks.is_joined(made_values[0])) {
    const Type &sent = app.type(app.args[0]);
    const AxisSet axes = rules::communicated_axes(app);
    for (AxisId axis : axes)
      if (std::optional<unsigned> dim = sent.dim(axis))
        for (AxisId other : ir::shards_of(sent, *dim))
          now_.exchanged |= other;
    now_.exchanged -= axes;
  }
  for (uint32_t r = 0; r < made_values.size(); ++r) {
    now_.joined.push_back(
        lists_.follow(app, state_.operands.values, made_values[r], r, made_values.size()));
    if (const Lists::Joined *joined = stacks.joined(made_values[r]))
      now_.joined.back() = *joined;
  }
  now_.normed_alone = {};
  if (app.op.computes(Computes::Norm) && app.args.size() == 1)
    now_.normed_alone = axes_in(program_.insts[id], "alone") & app.type(app.args[0]).equal();
  for (uint32_t r = 0; r < app.results.size(); ++r) {
    Norms::Made made = norms_.made(app, state_.operands.values, r, made_values[r]);
    made.root.axes |= now_.normed_alone;
    if (AxisSet axes = made.left_out - now_.reported)
      state_.report(Place::inst(id), rules::NormUndercount{{made.operand}, axes});
    if (AxisSet axes = made.counted - now_.reported)
      state_.report(Place::inst(id), rules::NormOvercount{{made.operand}, axes});
    if (auto differs = scale_of_norm(app, state_.operands.values, made, r, now_.reported))
      state_.report(Place::inst(id), std::move(*differs));
    now_.norms.push_back(made);
  }
}

// The part that a rank takes of its own block is no block of the whole: the other parts of it are
// nobody's. Of a batch it is as good as any rows. A step that keeps the extents takes nothing.
// A number of the script with which an optimizer multiplies, or divides, what it updates.
void SecondPass::judge_rate(InstId id, const rules::Application &app) {
  if (program_.insts[id].phase != ir::Phase::Optimizer || state_.operands.values.size() != 2 ||
      !(app.op.computes(Computes::Product) || app.op.computes(Computes::Quotient)))
    return;
  const ValueId value = state_.operands.values[1];
  const ir::Param *number = program_.find_param(value);
  if (!number || number->role != ir::Role::Const || !is_number(value) ||
      is_number(state_.operands.values[0]))
    return;
  const Type &type = program_.types[state_.known(value).type];
  if (AxisSet axes = type.of(Kind::Varying) - now_.reported;
      axes && numbered_.insert(value.index).second)
    state_.report(Place::inst(id), rules::UnlikeSteps{{1}, axes});
}

void SecondPass::judge_part_of_own(InstId id, const rules::Application &app) {
  rules::Outcome ignored;
  const ir::Inst &inst = program_.insts[id];
  if (app.op.transition != rules::TransitionOp::Convert || app.args.size() != 1 ||
      inst.result_count != 1 || app.args[0].shape == result_.shapes[inst.first_result.index])
    return;
  const std::optional<rules::CallAxes> axes = rules::resolve_axes(app, {}, ignored);
  const Type &type = app.type(app.args[0]);
  for (AxisId axis : axes ? type.sharded() & axes->all() : AxisSet())
    if (!data_.contains(state_.operands.values[0].index) || type.dim(axis) != 0U)
      now_.open |= axis;
}

// Rows that a mask has picked: what asks how many they are may not be proved by their cut.
void SecondPass::judge_selected(const rules::Application &app) {
  now_.picked = Selected::picked(app);
  now_.open -= now_.picked; // the rule asks for whole dimensions, as an index of numbers does
  AxisSet rows;
  for (size_t i = 0; i < state_.operands.values.size() && i < app.args.size(); ++i) {
    const AxisSet own = selected_.own_counts(state_.operands.values[i]);
    now_.own_counts |= own;
    rows |= own & app.type(app.args[i]).sharded();
  }
  if (app.op.form == rules::OpForm::Transition)
    now_.open |= rows & rules::communicated_axes(app);
  else if (rows && Selected::counts_rows(app))
    now_.open |= rows;
  // A block into which rows were put back has its rows again.
  if (app.op.computes(Computes::Put))
    now_.own_counts -= now_.picked;
  else
    now_.own_counts |= now_.picked;
}

// Edges that neighbours have sent, beside a rank's own rows.
void SecondPass::judge_window(InstId id, const rules::Application &app) {
  const ir::Inst &inst = program_.insts[id];
  if (inst.result_count == 0)
    return;
  now_.window = windows_.made(app, state_.operands.values, inst.first_result);
  if (now_.window.window) {
    now_.open -= now_.window.window->axis;
    now_.window.window->any_order |= now_.parts.contains(now_.window.window->axis);
  } else
    for (ValueId operand : state_.operands.values)
      now_.open |= windows_.parts(operand);
  const AxisSet axes = now_.window.axes - now_.reported;
  if (axes.empty() || !is_forward(inst))
    return;
  const rules::OperandIndex operand{now_.window.operand};
  if (now_.window.fault == Windows::Fault::Order)
    state_.report(Place::inst(id), rules::MisplacedEdge{operand, axes});
  else if (now_.window.fault == Windows::Fault::Ends)
    state_.report(Place::inst(id), rules::HalfOpenRing{operand, axes});
  else if (now_.window.fault == Windows::Fault::Axis)
    state_.report(Place::inst(id), rules::EdgeOfOtherAxis{operand, axes});
}

// What neighbours have computed of the gradient of edges, and of what they have not sent back.
void SecondPass::judge_edge_gradient(InstId id, const rules::Application &app) {
  const ir::Inst &inst = program_.insts[id];
  if (is_forward(inst) || windows_.empty())
    return;
  llvm::SmallVector<AxisSet, 4> proved;
  for (ValueId operand : state_.operands.values)
    proved.push_back(result_.proved[operand.index]);
  now_.edge_gradient = edge_gradients_.made(inst, app, state_.operands.values, proved);
  edge_gradients_.learn(inst, app, state_.operands.values, now_.edge_gradient, proved);
  const AxisSet axes = AxisSet(now_.edge_gradient.axis) - now_.reported;
  if (now_.edge_gradient.misplaced && axes)
    state_.report(Place::inst(id), rules::MisplacedEdge{{*now_.edge_gradient.misplaced}, axes});
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    const ValueId of = program_.values[inst.result(r)].grad_of;
    if (const AxisSet lacking = edge_gradients_.lacking(inst.result(r)) - now_.reported;
        of.valid() && lacking)
      state_.report(Place::inst(id), rules::EdgeGradientKept{of, lacking});
  }
}

// Blocks that go round the ranks of an axis.
void SecondPass::follow_ring(const ir::Inst &inst, const rules::Application &app) {
  if (inst.result_count == 0 || rings_.empty())
    return;
  const auto &values = state_.operands.values;
  llvm::SmallVector<bool, 8> unread;
  llvm::SmallVector<AxisSet, 8> proved;
  for (uint32_t i = 0; i < values.size(); ++i) {
    unread.push_back(now_.unread.contains(i));
    proved.push_back(result_.proved[values[i].index]);
  }
  now_.ring = rings_.made(defining_inst(program_, inst.first_result), app, values, unread, proved);
}

void SecondPass::judge_ring(InstId id, const rules::Application &app) {
  if (rings_.empty())
    return;
  const rules::OperandIndex operand{now_.ring.operand};
  const AxisSet axes = AxisSet(now_.ring.axis) - now_.reported;
  const bool mixed = now_.ring.fault == Rings::Fault::Mixed && axes;
  if (mixed && !is_forward(program_.insts[id]) && mixed_.contains(axes))
    ; // the backward of what was reported
  else if (mixed)
    state_.report(Place::inst(id),
                  rules::MixedBlocks{operand, now_.ring.back, now_.ring.other, axes});
  else if (now_.ring.fault == Rings::Fault::Missing && axes)
    state_.report(Place::inst(id), rules::MissingBlock{operand, now_.ring.back, axes});
  else if (now_.ring.fault == Rings::Fault::Repeated && axes)
    state_.report(Place::inst(id), rules::RepeatedBlock{operand, now_.ring.back, axes});
  else if (now_.ring.fault == Rings::Fault::Scaled && axes)
    state_.report(Place::inst(id), rules::UnlikeScales{operand, axes});
  if (mixed)
    mixed_ |= axes;
  rings_.learn(app, id, state_.operands.values, now_.ring);
  judge_gradient_block(id);
}

void SecondPass::judge_gradient_block(InstId id) {
  const ir::Inst &inst = program_.insts[id];
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    const ValueId of = program_.values[inst.result(r)].grad_of;
    if (!of.valid())
      continue;
    const auto astray = rings_.astray(inst.result(r), of, program_.types[result_.types[of.index]]);
    if (!astray || now_.reported.contains(astray->axis))
      continue;
    state_.report(
        Place::inst(astray->by.valid() ? astray->by : id),
        rules::GradientOfOtherBlock{of, astray->back, astray->wanted, AxisSet(astray->axis)});
  }
}

// What blocks of several ranks are made of says by what the result is off, where its rule, which
// sees no blocks, says nothing.
void SecondPass::keep_scale_of_blocks(const rules::ResolvedOp &op, Type &type) const {
  if (type.scale.valid() || now_.scale_open || now_.ring.results.empty())
    return;
  const bool divides = op.computes(Computes::Quotient);
  const bool multiplies =
      op.computes(Computes::Product) || (op.row && op.row->factors == rules::matmul_factors);
  const bool passes = op.computes(Computes::Sum) || op.computes(Computes::Difference) ||
                      op.transition == rules::TransitionOp::CollectivePermute ||
                      moves_elements(op) || (op.row && op.row->factors == rules::cat_factors);
  std::optional<ir::ScaleId> scale;
  for (uint32_t i = 0; i < state_.args.size(); ++i) {
    const Type &of = program_.types[state_.args[i].type];
    if (of.zero().contains(now_.ring.axis) || now_.unread.contains(i))
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

// What has come together from all ranks is an ordinary tensor again.
void SecondPass::keep_known(uint32_t index, Type &type) {
  if (const auto *of_block = now_.edge_gradient.known(index);
      of_block && !now_.reported.contains(of_block->axis)) {
    type.drop_shards(AxisSet(of_block->axis));
    type.close_orders();
    type.set_kind(of_block->axis, of_block->dim ? Kind::Varying : Kind::Partial);
    if (of_block->dim)
      cut(type, of_block->axis, *of_block->dim);
  }
  const Rings::Known *known = now_.ring.known(index);
  if (!known || now_.reported.contains(known->axis))
    return;
  type.drop_shards(AxisSet(known->axis));
  type.close_orders();
  type.set_kind(known->axis, known->dim ? Kind::Varying : Kind::Replicate);
  if (known->dim)
    cut(type, known->axis, *known->dim);
}

// The backward of taking a block, as a join or by an op of its own: zeros stand in the place of the
// blocks of other ranks, so that it is an addend of the whole.
void SecondPass::find_padded(const rules::Application &app) {
  now_.padded = {};
  auto *factors = now_.takes_block && app.op.row ? app.op.row->factors : nullptr;
  if (factors != rules::cat_factors && factors != rules::slice_backward_factors)
    return;
  const rules::Arg *block = nullptr;
  for (const rules::Arg &arg : app.args)
    if (!app.type(arg).zero().contains(app.mesh().typed_axes())) {
      if (block)
        return;
      block = &arg;
    }
  const ir::Shape *shape = block ? app.shape(*block) : nullptr;
  const auto dims =
      shape ? rules::placed_dims(app, rules::DefaultDim::First, shape->dims.size()) : std::nullopt;
  if (!dims || dims->size() != 1)
    return;
  for (AxisId axis : app.type(*block).sharded())
    if (app.type(*block).dim(axis) == dims->front())
      now_.padded |= axis;
  now_.open -= now_.padded;
}

// What is looked up in a rank's own rows, and by which index.
void SecondPass::judge_lookup(InstId id, const rules::Application &app) {
  now_.lookup = lookups_.made(app, state_.operands.values);
  now_.open -= now_.lookup.scattered;
  now_.open |= now_.lookup.unplaced;
  if (AxisSet axes = now_.lookup.summed - now_.reported)
    state_.report(Place::inst(id),
                  rules::WrongSource{{0}, {.kind = Kind::Partial}, {.kind = Kind::Varying}, axes});
  if (const auto &wrong = now_.lookup.misplaced; wrong && !now_.reported.contains(wrong->axis))
    state_.report(Place::inst(wrong->by.valid() ? wrong->by : id),
                  rules::BlockOffset{wrong->rows, wrong->step, AxisSet(wrong->axis)});
  if (now_.lookup.foreign) {
    const Type &source = app.type(app.args[now_.lookup.source]);
    const AxisSet known = result_.proved[state_.operands.values[now_.lookup.source].index];
    now_.open |= now_.lookup.foreign;
    if (AxisSet axes =
            now_.lookup.foreign & ((source.equal() & known) - source.zero()) & ~now_.reported)
      state_.report(Place::inst(id), rules::ForeignRows{{now_.lookup.source}, axes});
  }
  const ir::Inst &inst = program_.insts[id];
  if (inst.result_count != 0)
    offsets_.learn(id, app, state_.operands.values, inst.result(0));
}

// The index of a lookup in a rank's own rows, and the mask by which the rest is set to zero, are
// to differ between ranks: the rule sees them as equal, and what it says is completed later.
void SecondPass::take_offset_operands(const rules::Application &app) {
  for (size_t i : lookups_.offset_operands(app, state_.operands.values)) {
    const AxisSet axes = offsets_.axes(state_.operands.values[i]);
    Type type = program_.types[state_.args[i].type];
    type.set_kind(axes & ((type.of(Kind::Varying) - type.sharded()) | type.unknown),
                  Kind::Replicate);
    state_.args[i].type = state_.intern(type);
    now_.offset_axes |= axes;
  }
}

// A number of the rank's own beside the rows of its batch is one for each of these rows, as where
// each rank draws its data with another spread. Of integers it may be a position; what divides
// them may be a count, as of a mask that weighs the rows of a mean.
void SecondPass::take_own_numbers(const rules::Application &app) {
  const bool asks = app.op.row && app.op.row->dtype == rules::DTypeRule::Boolean;
  if (!(app.op.computes(Computes::Product) || app.op.computes(Computes::Sum) ||
        app.op.computes(Computes::Difference) || asks))
    return;
  AxisSet rows;
  for (size_t i = 0; i < app.args.size(); ++i) {
    const ValueId value = state_.operands.values[i];
    const Type &type = app.type(app.args[i]);
    for (AxisId axis : data_.count(value.index) && is_float(value) ? type.sharded() : AxisSet())
      if (type.dim(axis) == 0U)
        rows |= axis;
  }
  for (size_t i = 0; i < app.args.size() && rows; ++i) {
    const ir::Shape *shape = app.shape(app.args[i]);
    if (!shape || !shape->dims.empty() || !data_.count(state_.operands.values[i].index))
      continue;
    Type type = program_.types[state_.args[i].type];
    type.set_kind(rows & (type.of(Kind::Varying) - type.sharded()), Kind::Replicate);
    state_.args[i].type = state_.intern(type);
  }
}

// Numbers and masks that differ between ranks by their blocks, and what is made by them.
void SecondPass::keep_offsets(ValueId value, uint32_t index, Type &type) {
  if (const AxisSet axes = index == 0 ? offsets_.axes(value) : AxisSet())
    type.set_kind(axes - type.sharded(), Kind::Varying);
  else if (now_.offset_axes)
    type.set_unknown((now_.offset_axes - type.sharded()) -
                     (now_.lookup.looked_up | now_.lookup.addends | now_.lookup.scattered |
                      now_.lookup.shared | now_.lookup.summed));
  type.set_kind(now_.lookup.shared & type.equal(), Kind::Varying);
}

// Sums over a rank's own block and over those that others have sent it: after all turns of a ring
// they are the sum of all blocks, which each rank then has, and before that nothing is known.
void SecondPass::find_sent(const rules::Application &app) {
  const bool adds = app.op.computes(Computes::Sum) || app.op.computes(Computes::Difference);
  AxisSet pending;
  now_.received = now_.sums_received = AxisSet();
  if (app.op.transition == rules::TransitionOp::CollectivePermute)
    now_.received = rules::communicated_axes(app);
  for (ValueId operand : state_.operands.values)
    now_.received |= made_of_sent_.lookup(operand.index);
  for (const rules::Arg &arg : app.args) {
    const AxisSet now = app.type(arg).of(Kind::Partial) - app.type(arg).zero();
    now_.sums_received |= adds ? now_.received & pending & now : AxisSet();
    pending |= now;
  }
}

// What an operation overwrites, or only takes the shape of, says nothing of its results. What is
// overwritten as a whole is what it is overwritten with: temporary storage is of no kind, and what
// the storage of a parameter keeps is judged where it is written (effects.h).
void SecondPass::bind(const ir::Inst &inst, const rules::Application &app) {
  find_unread(app);
  take_root(app);
  take_rows(inst, app);
  find_parts(app);
  take_offset_operands(app);
  take_own_numbers(app);
  follow_ring(inst, app);
  if (now_.unread.size() != 1 || state_.args.size() != 2)
    return;
  rules::Arg &target = state_.args[*now_.unread.begin()];
  const rules::Arg &source = state_.args[1 - *now_.unread.begin()];
  if (target.shape == source.shape && app.type(target).mesh() == app.type(source).mesh())
    target.type = source.type;
}

// A part of the rows that a rank has is its block of what all ranks take so of theirs: the rows of
// a batch may stand in any order. Of other dimensions the order is not known to be right.
void SecondPass::find_parts(const rules::Application &app) {
  if (!app.op.row || app.op.row->own_dims != rules::OpDef::OwnDims::Proportional ||
      now_.takes_block)
    return;
  for (const rules::Arg &arg : app.args)
    now_.parts |= app.type(arg).sharded();
  for (size_t i = 0; i < app.args.size(); ++i)
    for (AxisId axis : app.type(app.args[i]).sharded() | now_.parts)
      if (app.type(app.args[i]).dim(axis) != 0U &&
          !zero_blocks_.count(state_.operands.values[i].index))
        now_.parts -= axis;
}

void SecondPass::find_unread(const rules::Application &app) {
  auto add = [&](const rules::Slot *slot) {
    for (uint32_t i = 0; slot && i < slot->count; ++i)
      now_.unread.insert(slot->first + i);
  };
  for (llvm::StringRef name : {"out", "in_splits", "out_splits"})
    add(app.named(name));
  if (app.op.form != rules::OpForm::Equation || !app.op.row)
    return;
  const rules::Equation &row = app.op.row->equation.equation;
  llvm::SmallVector<uint8_t, 4> shapes; // operands of the row
  for (uint8_t operand = 0; operand < row.operand_count; ++operand)
    if (!row.reads(operand))
      shapes.push_back(operand);
  if (shapes.empty() && !llvm::is_contained(app.op.order, rules::ResolvedOp::kIgnored))
    return;
  rules::OperandMismatch mismatch;
  if (std::optional<rules::Binding> binding = rules::bind_operands(app, row, mismatch)) {
    for (uint8_t operand : shapes)
      add((*binding)[operand]);
    llvm::for_each(binding->ignored, add); // what a forward saves, and the row computes again
  }
}

// What was found of the operands and holds of the first result, whatever its type.
void SecondPass::learn(ValueId value) {
  extremes_.learn(value, now_.extreme);
  windows_.learn(value, now_.window);
  alone_.learn(value, now_.alone);
  alone_axes_ |= now_.alone.value;
  own_logs_.learn(value, now_.own_log);
}

void SecondPass::complete(InstId id, const ir::Inst &inst, uint32_t index, Type &type) {
  const ValueId value = inst.result(index);
  const AxisSet zero = type.zero();
  if (is_forward(inst) && llvm::all_of(state_.operands.values, [&](ValueId operand) {
        return data_.count(operand.index) != 0;
      }))
    data_.insert(value.index);
  keep_shared_gradient(inst, value);
  const rules::ResolvedOp &op = state_.rules.resolve(inst.op);
  if ((moves_elements(op) || (op.row && op.row->factors == rules::cat_factors)) &&
      llvm::all_of(state_.operands.values,
                   [&](ValueId operand) { return buffers_.contains(operand.index); }))
    buffers_.insert(value.index);
  keep_own(value, type);
  if (index == 0)
    learn(value);
  for (AxisId axis : now_.lookup.scattered - type.sharded())
    cut(type, axis, now_.lookup.dim);
  for (AxisId axis : now_.lookup.own - type.sharded())
    if (now_.lookup.own_dim)
      cut(type, axis, *now_.lookup.own_dim);
  if (AxisSet axes = joined(index); axes && now_.joined[index]->dim)
    for (AxisId axis : axes - type.sharded())
      cut(type, axis, *now_.joined[index]->dim);
  const Type before = type;
  type = gradual_.known(value, type, ~(now_.reported | unknown_operands()));
  const rules::OpDef *row = state_.rules.resolve(inst.op).row;
  keep_known_cuts(row, value, before, type);
  type.set_unknown(now_.exchanged);
  now_.cut_beside = cut_joined(index, type);
  for (AxisId axis : type.sharded() & before.equal()) // as a constant may be, and no number
    if (numbering_.numbers(value, *type.dim(axis))) {
      type.drop_shards(AxisSet(axis));
      rules::take_kinds(type, before, axis);
    }
  for (AxisId axis : now_.parts &(type.of(Kind::Varying) - type.sharded()))
    cut(type, axis, 0);
  const bool zeros = zero.contains(program_.meshes[type.mesh()].typed_axes()) ||
                     (row && row->constant == rules::OpDef::Constant::Zero);
  if (zeros && type.of(Kind::Varying))
    zero_blocks_.insert(value.index);
  if (makes_zero(inst))
    type.set_zero(program_.meshes[type.mesh()].typed_axes());
  keep_addends(state_.rules.resolve(inst.op), index, inst.result_count, type);
  if (index < now_.norms.size())
    apply_norms(value, index, type);
  keep_offsets(value, index, type);
  if (index == 0)
    keep_blocks(type);
  for (AxisId axis : now_.picked - type.sharded())
    cut(type, axis, 0);
  selected_.learn(value, now_.own_counts & (type.sharded() | type.of(Kind::Partial)));
  if (now_.padded) {
    type.drop_shards(now_.padded);
    type.set_kind(now_.padded, Kind::Partial);
  }
  const std::optional<ir::ScaleId> numbers = gradual_.numbers().scale(id, result_.types);
  now_.scale_open |= !numbers || (now_.own_counts && gradual_.numbers().is_mean(id));
  type.scale = ir::product(program_, type.scale, numbers.value_or(program_.one()));
  type.scale = ir::product(program_, type.scale, now_.count_scale);
  restore(value, type);
  const Rings::Known *known = now_.ring.known(index);
  AxisSet round = known ? AxisSet(known->axis) : AxisSet();
  if (const auto *block = now_.edge_gradient.known(index))
    round |= block->axis;
  if (const AxisSet sent = now_.received - now_.window.blocks() - round)
    made_of_sent_[value.index] = sent;
  type.set_unknown((now_.sums_received & type.of(Kind::Partial)) - round);
  // What another rank sends may have been divided by anything.
  if (now_.scale_open || state_.rules.resolve(inst.op).boundary == rules::Boundary::Recv)
    type.scale = ir::ScaleId();
  keep_scale_of_blocks(op, type);
  keep_known(index, type);
  follow_means(id, value, index);
  follow_weights(inst, value);
  keep_rows(id, value, index, type);
  keep_root(id, value, index, type);
}

// Whether two dimensions of what a view makes were one before, or one of several that were merged.
static bool were_one(const ir::Shape &before, const ir::Shape &after, unsigned one,
                     unsigned other) {
  const auto is_number = [](const ir::Extent &extent) { return extent.is_number(); };
  if (!llvm::all_of(before.dims, is_number) || !llvm::all_of(after.dims, is_number))
    return true;
  // By dimension: how many elements lie up to its end.
  const auto reach = [](const ir::Shape &shape) {
    llvm::SmallVector<int64_t, 8> ends;
    for (const ir::Extent &extent : shape.dims)
      ends.push_back(ir::saturating_product(ends.empty() ? 1 : ends.back(), extent.number()));
    return ends;
  };
  const llvm::SmallVector<int64_t, 8> held = reach(before), made = reach(after);
  // A new dimension of one element is of those on either side of it.
  const auto is_new_unit = [&](unsigned d) {
    for (unsigned b = 0; b < before.dims.size(); ++b)
      if (before.dims[b].number() == 1 && held[b] == made[d])
        return false;
    return after.dims[d].number() == 1;
  };
  unsigned first = 0, last = 0; // of dimensions that are made of the same ones, and of those ahead
  for (unsigned d = 0; d < after.dims.size(); ++d) {
    if (!llvm::is_contained(held, made[d]) && made[d] != 1)
      continue;
    const unsigned from = first == d && is_new_unit(d) ? last : first;
    if (std::min(one, other) >= from && std::max(one, other) <= d)
      return true;
    last = from;
    for (first = d + 1; first > from && is_new_unit(first - 1);)
      --first;
  }
  return first < after.dims.size() && std::min(one, other) >= first;
}

// What is made of data is cut where the rule says, whatever other dimension is as long as a block.
// Only a view may have lost which one it is, of several that were one.
void SecondPass::keep_known_cuts(const rules::OpDef *row, ValueId value, const Type &before,
                                 Type &type) {
  if (!row || row->constant != rules::OpDef::Constant::No)
    return;
  const ir::ShapeId made = gradual_.by_kinds().shapes[value.index];
  const ir::ShapeId of = state_.args.size() == 1 ? state_.args[0].shape : ir::ShapeId();
  for (AxisId axis : before.sharded() & type.sharded()) {
    const unsigned was = *before.dim(axis), is = *type.dim(axis);
    const bool views = row->factors == rules::reshape_factors && made.valid() && of.valid() &&
                       were_one(program_.shapes[of], program_.shapes[made], was, is);
    if (was == is || views)
      continue;
    type.drop_shards(axis);
    cut(type, axis, was);
  }
}

// Blocks that were cut out of windows, and what one rank alone has.
void SecondPass::keep_blocks(Type &type) {
  for (AxisId axis : now_.window.blocks() - type.sharded() - now_.reported) {
    type.set_kind(axis, Kind::Varying);
    cut(type, axis, now_.window.window->dim);
  }
  for (AxisId axis : now_.alone.value - now_.reported) {
    type.drop_shards(axis);
    type.set_kind(axis, Kind::Partial);
  }
  if (now_.alone.value && !type.scale.valid()) { // what one rank alone has is taken as it is
    type.scale = program_.one();
    now_.alone.scaled = {};
  }
}

// The mean of what was divided by a rank's own count is that of all only where the counts are
// equal, or where the count multiplies it again. What a backward begins with is none of these.
void SecondPass::follow_means(InstId id, ValueId value, uint32_t index) {
  const rules::ResolvedOp &op = state_.rules.resolve(program_.insts[id].op);
  if (now_.divided && index == 0)
    means_[value.index] = {id, now_.divided, now_.uneven};
  else if (state_.operands.values.size() == 1)
    if (auto from = means_.find(state_.operands.values[0].index); from != means_.end())
      means_.try_emplace(value.index, Mean(from->second));
  const ValueId root = program_.values[value].grad_of;
  const bool seed = op.row && op.row->constant != rules::OpDef::Constant::No;
  if (!root.valid() || !seed)
    return;
  const Mean mean = means_.lookup(root.index);
  // A loss that each rank has of its own is an addend, whatever it was made of.
  const Type &type = program_.types[result_.types[root.index]];
  const Type &own = program_.types[gradual_.by_kinds().types[root.index]];
  const AxisSet loose = type.unknown | (type.of(Kind::Varying) - type.sharded());
  if (AxisSet axes =
          mean.uneven & (type.of(Kind::Partial) | (loose & (own.of(Kind::Partial) | own.unknown))))
    state_.report(Place::inst(mean.by), rules::UnequalCounts{root, axes});
}

// The axes along which a result is a list of blocks, or of their parts, that was put together
// again in its order.
AxisSet SecondPass::joined(uint32_t index) const {
  AxisSet axes;
  if (index >= now_.joined.size() || !now_.joined[index])
    return axes;
  const Type &of = program_.types[result_.types[now_.joined[index]->of.index]];
  const llvm::SmallVector<AxisId, 2> cuts = ir::shards_of(of, now_.joined[index]->at);
  const size_t outer = cuts.size() - std::min<size_t>(cuts.size(), now_.joined[index]->axes.size());
  for (AxisId axis : llvm::drop_begin(cuts, outer))
    if (now_.joined[index]->axes.contains(axis))
      axes |= axis;
  return axes;
}

// The dimensions of such a result that other axes cut in what it was made of: by which, and where.
AxisSet SecondPass::cut_joined(uint32_t index, Type &type) const {
  const AxisSet axes = joined(index);
  if (axes.empty() || !now_.joined[index]->moved)
    return {};
  const Lists::Joined &joined = *now_.joined[index];
  const Type &of = program_.types[result_.types[joined.of.index]];
  llvm::SmallVector<AxisId, 4> whole, blocks;
  llvm::copy_if(ir::shards_of(of, joined.at), std::back_inserter(whole),
                [&](AxisId axis) { return !axes.contains(axis); });
  llvm::append_range(blocks, ir::shards_of(of, joined.moved->second));
  AxisSet beside;
  for (AxisId axis : llvm::concat<AxisId>(whole, blocks))
    beside |= axis;
  for (AxisId axis : axes)
    blocks.push_back(axis);
  type.drop_shards(beside | axes);
  type.close_orders();
  for (AxisId axis : whole)
    cut(type, axis, joined.moved->first);
  for (AxisId axis : blocks)
    cut(type, axis, *joined.dim);
  return beside;
}

// Where all ranks have one loss, the gradient of it is equal on all, and so are numbers times it.
void SecondPass::keep_shared_gradient(const ir::Inst &inst, ValueId value) {
  const rules::ResolvedOp &op = state_.rules.resolve(inst.op);
  const llvm::ArrayRef<ValueId> values = state_.operands.values;
  if (!inst.bwd_of.valid() || values.empty())
    return;
  const Type &first = program_.types[result_.types[values[0].index]];
  const bool begins = op.transition == rules::TransitionOp::Reinterpret && first.equal();
  const bool scales = op.computes(Computes::Product) || op.computes(Computes::Quotient);
  const bool handed_on = (scales || moves_elements(op)) && llvm::all_of(values, [&](ValueId each) {
                           return shared_gradients_.contains(each.index);
                         });
  if (begins || handed_on)
    shared_gradients_.insert(value.index);
}

// What counts or orders a rank's own elements numbers what it has by itself: summed over, it is no
// addend of the whole, but a thing of its own.
void SecondPass::keep_own(ValueId value, Type &type) {
  AxisSet own = now_.own, before;
  const AxisSet looked_up = now_.lookup.looked_up | now_.lookup.addends;
  for (ValueId operand : state_.operands.values) {
    own |= result_.own[operand.index];
    before |= program_.types[result_.types[operand.index]].of(Kind::Partial);
  }
  own -= looked_up; // an addend of the whole, when it is masked
  if (own.empty())
    return;
  const AxisSet made = type.of(Kind::Partial) & own;
  type.set_kind(made - before, Kind::Varying);
  result_.own[value.index] = own & (type.of(Kind::Varying) | type.unknown);
}

// Squares of norms of blocks, and what was looked up in a rank's own rows, are addends.
void SecondPass::apply_norms(ValueId value, uint32_t index, Type &type) {
  const Norms::Made &made = now_.norms[index];
  norms_.learn(value, made);
  type.set_kind(now_.normed_alone, Kind::Varying);
  type.set_kind(made.square.axes - now_.reported, Kind::Partial);
  now_.open -= made.root.axes | made.square.axes;
  lookups_.learn(value, now_.lookup);
  type.set_kind(now_.lookup.addends - now_.reported, Kind::Partial);
  now_.open -=
      ((now_.lookup.looked_up | now_.lookup.addends) - now_.lookup.unplaced) | now_.lookup.own;
}

// A tensor that is made of the number 0 is of every kind and scale.
bool SecondPass::makes_zero(const ir::Inst &inst) {
  const rules::ResolvedOp &op = state_.rules.resolve(inst.op);
  const rules::OpDef *row = op.row;
  if (op.computes(Computes::Product)) // `+ 0.0 * unused.sum()`
    return llvm::any_of(state_.operands.slots, [](const rules::Slot &slot) {
      return slot.form == rules::Slot::Form::Literal && rules::is_zero(slot.literal);
    });
  if (!row || row->constant != rules::OpDef::Constant::Either)
    return false;
  for (llvm::StringRef name : {"s", "value", "fill_value"})
    if (const ir::AttrValue *value = program_.find(inst.attrs, name))
      return rules::is_zero(*value);
  return false;
}

// What is pending is so still when it is multiplied by something unknown, which was reported.
void SecondPass::keep_addends(const rules::ResolvedOp &op, uint32_t result, uint32_t results,
                              Type &type) {
  if (!(op.computes(Computes::Product) || op.computes(Computes::Quotient)) ||
      state_.args.size() < results)
    return;
  const Type &kept = program_.types[state_.args[result].type];
  AxisSet pending = kept.of(Kind::Partial) - kept.zero() - kept.unknown;
  type.set_kind(pending & type.unknown & unknown_operands() & ~now_.reported, Kind::Partial);
}

// What is cut out of a bucket is what was put there. `type`: as it would be if nothing were known
// of its parts.
void SecondPass::restore(ValueId value, Type &type) const {
  const Pieces &pieces = gradual_.pieces();
  const ValueId whole = pieces.whole(value);
  if (!whole.valid() || program_.types[result_.types[whole.index]].mesh() != type.mesh())
    return;
  const Type &before = program_.types[result_.types[whole.index]];
  AxisSet loose = (type.of(Kind::Varying) - type.sharded()) | type.unknown;
  for (AxisId axis : loose - pieces.changed(value) - now_.reported - before.unknown) {
    if (std::optional<Kind> kind = before.kind(axis);
        kind == Kind::Replicate || kind == Kind::Invariant)
      type.set_kind(axis, *kind);
    if (std::optional<unsigned> dim = before.dim(axis);
        dim && pieces.same_shape(value, whole) && ir::shards_of(type, *dim).empty()) {
      type.set_kind(axis, Kind::Varying);
      type.set_shard(axis, *dim, 0);
    }
  }
}

// The axes on which all that a flat tensor consists of is known.
AxisSet SecondPass::known_pieces(ValueId value, ir::MeshId mesh) const {
  llvm::ArrayRef<Pieces::Piece> pieces = gradual_.pieces().of(value);
  AxisSet axes = pieces.empty() ? AxisSet() : ~gradual_.pieces().changed(value);
  for (const Pieces::Piece &piece : pieces) {
    const Type &type = program_.types[result_.types[piece.of.index]];
    axes &= type.mesh() == mesh ? known_axes(type) : AxisSet();
  }
  return axes;
}

// The axes along which all ranks have written the same into rows of their batches, wherever in
// these: it is a part of their data. Not where they share out data that all have, which may be
// positions of one sequence.
AxisSet SecondPass::written_rows(InstId id, const Type &type) const {
  const llvm::ArrayRef<ValueId> values = state_.operands.values;
  if (state_.rules.resolve(program_.insts[id].op).boundary != rules::Boundary::Alias ||
      values.size() != 2 || !data_.contains(values[0].index) || !data_.contains(values[1].index))
    return {};
  AxisSet axes;
  // The operand is what is left of all writes by now; the value, what was written last.
  for (AxisId axis : program_.types[result_.types[values[0].index]].equal() & type.sharded())
    if (type.dim(axis) == 0U)
      axes |= axis;
  return axes - shared_out_;
}

// A value is proved on an axis where all operands are, its rule applied there, and what it is
// follows.
void SecondPass::prove(InstId id, ValueId value, uint32_t index, const Type &type) {
  AxisSet before = ~AxisSet(), axes = program_.meshes[type.mesh()].typed_axes();
  const AxisSet written = written_rows(id, type);
  for (uint32_t i = 0; i < state_.operands.values.size(); ++i)
    if (!now_.unread.contains(i))
      before &= result_.proved[state_.operands.values[i].index] | (i == 0 ? written : AxisSet()) |
                (now_.routed.rows & routes_.counts(state_.operands.values[i])) |
                proved_on_root(state_.operands.values[i]);
  llvm::SmallVector<ValueId, 2> returned = returned_as(id, value);
  for (ValueId each : returned)
    before &= result_.proved[each.index];
  const AxisSet windowed = now_.window.window
                               ? AxisSet(now_.window.window->axis) - now_.window.window->astray
                               : AxisSet();
  AxisSet proved =
      (axes & before &
       (known_axes(type) | routes_.owned(value) | norms_.root(value).axes | now_.lookup.looked_up |
        now_.lookup.shared |
        (index == 0 ? now_.extreme.own | offsets_.axes(value) | windowed : AxisSet()))) -
      now_.reported - now_.open;
  if (AxisSet whole = joined(index) | now_.cut_beside)
    proved |= whole & known_axes(type) & result_.proved[now_.joined[index]->of.index];
  if (const Rings::Known *known = now_.ring.known(index); known && known->proved)
    if (!known->dim || ir::shards_of(type, *known->dim).size() == 1)
      proved |= (AxisSet(known->axis) & known_axes(type)) - now_.reported;
  const auto *of_block = now_.edge_gradient.known(index);
  if (of_block && of_block->proved)
    proved |= (AxisSet(of_block->axis) & known_axes(type)) - now_.reported;
  // How tensors lie behind one another is no question of cuts.
  proved |= axes & before & known_pieces(value, type.mesh());
  const AxisSet counts = own_counts_made(value, type) - proved;
  routes_.count(value, counts);
  for (AxisId axis : (axes & before) - proved - counts - routes_.counts(value))
    result_.lost.push_back({axis, Place::inst(id)});
  result_.proved[value.index] = proved;
  AxisSet scaled = axes;
  if (is_float(value)) {
    // What a loop makes is what its body returns of what it begins with.
    const std::optional<uint32_t> begins = carry_of(program_.insts[id], index);
    for (uint32_t i = 0; i < state_.operands.values.size(); ++i)
      if (ValueId operand = state_.operands.values[i];
          is_float(operand) && !now_.unread.contains(i) && i == begins.value_or(i))
        scaled &= result_.scaled[operand.index];
    for (ValueId each : returned)
      scaled &= result_.scaled[each.index];
    if (index == 0)
      scaled |= now_.alone.scaled;
    if (const Rings::Known *known = now_.ring.known(index); known && known->proved)
      scaled |= known->axis;
    if (of_block && of_block->proved)
      scaled |= of_block->axis;
    scaled &= (known_axes(type) | routes_.owned(value) | (index == 0 ? windowed : AxisSet())) -
              now_.reported - now_.open;
  }
  result_.scaled[value.index] = scaled | proved;
}

// What the bodies of a call return for this result of it.
llvm::SmallVector<ValueId, 2> SecondPass::returned_as(InstId id, ValueId value) const {
  llvm::SmallVector<ValueId, 2> found;
  const ir::Inst &inst = program_.insts[id];
  if (state_.rules.resolve(inst.op).form != rules::OpForm::Call)
    return found;
  for (const ir::Attr &attr : program_.attrs[inst.attrs].attrs) {
    if (attr.value.form != ir::AttrForm::Function)
      continue;
    const ir::Function &function = program_.functions[attr.value.as<ir::FunctionId>()];
    if (function.opaque || program_.blocks[function.results].size() != inst.result_count)
      continue;
    const ir::Operand &operand =
        program_.blocks[function.results][value.index - inst.first_result.index];
    if (operand.is_value())
      found.push_back(operand.as_value());
  }
  return found;
}

bool SecondPass::is_number(ValueId value) const {
  const ir::ShapeId shape = program_.values[value].shape;
  return shape.valid() && program_.shapes[shape].ranked && program_.shapes[shape].dims.empty();
}

bool SecondPass::is_float(ValueId value) const {
  const ir::ShapeId stated = program_.values[value].shape;
  const ir::ShapeId shape = stated.valid() ? stated : gradual_.by_kinds().shapes[value.index];
  return !shape.valid() || ir::differentiable(program_.shapes[shape].dtype);
}

// Kind, cut and scale are known there.
AxisSet SecondPass::known_axes(const Type &type) const {
  if (!type.scale.valid())
    return {};
  return program_.meshes[type.mesh()].typed_axes() - type.unknown -
         (type.of(Kind::Varying) - type.sharded());
}

bool SecondPass::admits(Place place, rules::Violation &violation) {
  const bool inst = place.form == Place::Form::Inst;
  // What is written to is a rank's own, as the operands are.
  if (inst && violation.is<rules::MutationChangesType>() &&
      now_.routed.seen_whole().contains(rules::axes_of(violation)))
    return false;
  // An addend may go round, and meet those of all other ranks.
  if (inst && violation.is<rules::WrongSource>() && !now_.ring.results.empty())
    return false;
  // What is exchanged by counts is as long as these say.
  if (inst && violation.is<rules::ShapeMismatch>() && now_.routed.counted)
    return false;
  if (certain(place, violation) && !again_in_optimizer(place, violation)) {
    if (inst)
      now_.reported |= rules::axes_of(violation);
    return true;
  }
  if (inst)
    now_.open |= rules::axes_of(violation) - moved(place.as_inst()) - now_.parts;
  now_.scale_open |= violation.is<rules::ScaleMismatch>();
  if (const auto *whole = violation.as<rules::UnwholeDimension>(); whole && inst)
    if (const rules::OpDef *row = state_.rules.resolve(program_.insts[place.as_inst()].op).row;
        row && !row->factors)
      now_.own |= whole->axes;
  return false;
}

// The axes of which it is known where each cut goes in what an instruction moves: a rule that asks
// for a whole dimension does not know of cuts inside of it, as of the heads in a fused qkv.
AxisSet SecondPass::moved(InstId id) const {
  const ir::Inst &inst = program_.insts[id];
  const rules::OpDef *row = state_.rules.resolve(inst.op).row;
  if (!row || !row->factors || inst.result_count == 0 ||
      !moves_elements(state_.rules.resolve(inst.op)))
    return {};
  AxisSet axes;
  for (AxisId axis : program_.meshes[program_.contexts[inst.context].mesh].typed_axes()) {
    auto known = [&](ValueId value) { return gradual_.cuts().dim(value, axis).has_value(); };
    // An operand that another dimension of is cut is not what that knowledge is of.
    bool all = llvm::all_of(state_.operands.values, [&](ValueId value) {
      const std::optional<unsigned> dim = program_.types[result_.types[value.index]].dim(axis);
      return known(value) && (!dim || dim == gradual_.cuts().dim(value, axis));
    });
    for (uint32_t r = 0; r < inst.result_count; ++r)
      all = all && known(inst.result(r));
    if (all)
      axes |= axis;
  }
  return axes;
}

// Zeros may be added to anything, and leave a pending sum where they overwrite rows of one. A
// gradient of zeros is that of any kind, at any scale.
bool SecondPass::is_of_zeros(Place place, const rules::Violation &violation) const {
  if (place.form != Place::Form::Inst)
    return false;
  auto zero = [&](ir::TypeId type) { // none before it is judged
    return type.valid() && program_.types[type].zero().contains(rules::axes_of(violation));
  };
  auto zero_operand = [&](rules::OperandIndex operand) {
    return operand.index < state_.args.size() && zero(state_.args[operand.index].type);
  };
  if (const auto *added = violation.as<rules::PartialPlusReplicate>())
    return zero_operand(added->addend.operand);
  if (const auto *mixed = violation.as<rules::PartialWithVarying>())
    return zero_operand(mixed->operand);
  if (!violation.is<rules::GradientTypeMismatch>() && !violation.is<rules::ScaleMismatch>())
    return false;
  const ir::Inst &inst = program_.insts[place.as_inst()];
  for (uint32_t r = 0; r < inst.result_count; ++r)
    if (program_.values[inst.result(r)].grad_of.valid() &&
        zero(result_.types[inst.result(r).index]))
      return true;
  return false;
}

// A finding is certain if it does not depend on what is unknown of the operands.
void SecondPass::follow_weights(const ir::Inst &inst, ValueId value) {
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
// its weight, as where there are as many experts as ranks.
bool SecondPass::weighs_terms(Place place, const rules::Violation &violation) const {
  if (!violation.is<rules::ScaleMismatch>() || place.form != Place::Form::Inst ||
      !state_.rules.resolve(program_.insts[place.as_inst()].op).computes(Computes::Sum))
    return false;
  AxisSet all = ~AxisSet(), any;
  for (ValueId operand : state_.operands.values) {
    all &= weights_.lookup(operand.index);
    any |= weights_.lookup(operand.index);
  }
  return (any - all).contains(rules::axes_of(violation));
}

bool SecondPass::certain(Place place, rules::Violation &violation) {
  if (is_of_zeros(place, violation) || weighs_terms(place, violation))
    return false;
  // The gradient of a loss that all ranks share is what each has, or an addend of as many.
  if (violation.is<rules::PartialWithVarying>() && place.form == Place::Form::Inst &&
      llvm::any_of(tensors_of(program_, place.as_inst()),
                   [&](ValueId value) { return shared_gradients_.contains(value.index); }))
    return false;
  if (steps_inside(place, violation))
    return false;
  return gradual_.certain(place, violation, open_at(place, violation));
}

// The sum of a derivative over a rank's rows is an addend, and a number of its own as well, such as
// the inner step of a rank's own task, with which the forward goes on.
bool SecondPass::steps_inside(Place place, const rules::Violation &violation) const {
  if (place.form != Place::Form::Inst)
    return false;
  const AxisSet axes = rules::axes_of(violation);
  auto sums = [&](ValueId value) {
    if (!value.valid() || !gradual_.of_derivative(value))
      return false;
    const Type &type = program_.types[result_.types[value.index]];
    return bool((type.of(Kind::Partial) | type.unknown) & axes);
  };
  if (violation.is<rules::PartialWithVarying>())
    return llvm::any_of(state_.operands.values, sums);
  const ir::Inst &inst = program_.insts[place.as_inst()];
  if (violation.is<rules::GradientTypeMismatch>())
    for (uint32_t r = 0; r < inst.result_count; ++r)
      if (sums(program_.values[inst.result(r)].grad_of))
        return true;
  return false;
}

// That each rank has an addend is a guess as well, unless it is of a gradient, of which one is
// picked: a gradient that an optimizer takes is pending, whatever is unknown of what it is made of.
AxisSet SecondPass::open_addends(const ir::Inst &inst, const rules::Violation &violation) const {
  AxisSet open;
  const auto *source = violation.as<rules::WrongSource>();
  const bool compares = violation.is<rules::ReductionMismatch>();
  if (!compares && !(source && source->found.kind == Kind::Partial))
    return open;
  const bool picks =
      compares || state_.rules.resolve(inst.op).transition == rules::TransitionOp::Broadcast;
  if (picks)
    open = alone_axes_; // the others have zeros
  for (ValueId value : state_.operands.values)
    if (!picks || is_forward(inst))
      open |= ~result_.proved[value.index];
  return open;
}

// The axes on which something that a finding depends on is not known.
AxisSet SecondPass::open_at(Place place, rules::Violation &violation) {
  AxisSet open;
  // Whose blocks these are is known, whatever else is not; so is a number that was seen to differ.
  if (violation.is<rules::UnlikeSteps>() || violation.is<rules::MixedBlocks>() ||
      violation.is<rules::MissingBlock>() || violation.is<rules::RepeatedBlock>() ||
      violation.is<rules::UnlikeScales>() || violation.is<rules::GradientOfOtherBlock>() ||
      violation.is<rules::EdgeGradientKept>() ||
      (violation.is<rules::MisplacedEdge>() && now_.edge_gradient.misplaced))
    return open;
  // So are the counts of the ranks.
  if (violation.is<rules::UnequalCounts>())
    return open;
  // What is printed or logged goes no further.
  if (place.form == Place::Form::Inst)
    if (state_.rules.resolve(program_.insts[place.as_inst()].op).computes(Computes::Number))
      open = ~AxisSet();
  auto add = [&](ir::TypeId id, AxisSet roots = {}) {
    if (id.valid())
      open |= program_.types[id].unknown |
              (program_.types[id].of(Kind::Varying) - program_.types[id].sharded() - roots);
  };
  if (place.form == Place::Form::Inst)
    for (size_t i = 0; i < state_.args.size(); ++i)
      add(state_.args[i].type, i < state_.operands.values.size()
                                   ? norms_.root(state_.operands.values[i]).axes |
                                         lookups_.axes(state_.operands.values[i]) |
                                         windows_.axes(state_.operands.values[i]) |
                                         own_logs_.axes(state_.operands.values[i])
                                   : AxisSet());
  if (const ValueId *value = violation.value(); value && value->valid())
    add(result_.types[value->index], routes_.owned(*value));
  // What is stated as unknown is of the kind that follows, whatever cut was assumed of it.
  if (const auto *claim = violation.as<rules::ClaimMismatch>(); claim && claim->value.valid())
    open |= gradual_.assumed_cuts(claim->value);
  // A gradient that is the rank's own, or that of a block which was inferred, may be right.
  if (const auto *mismatch = violation.as<rules::GradientTypeMismatch>()) {
    add(mismatch->found);
    // What a rank adds up over its rows is all that its own parameter gets.
    open |= routes_.owned(mismatch->value) & program_.types[mismatch->found].of(Kind::Partial);
    const ir::TypeId of =
        mismatch->value.valid() ? result_.types[mismatch->value.index] : ir::TypeId();
    for (AxisId axis : of.valid() ? program_.types[of].sharded() : AxisSet())
      if (gradual_.cuts().origin(mismatch->value, axis).value_or(Origin::Stated) != Origin::Stated)
        open |= axis;
  }
  // Where a rank has data of its own, which it does not by an index of its own, the scale is a
  // guess.
  if (violation.is<rules::ScaleMismatch>()) {
    for (ValueId value : state_.operands.values)
      if (place.form == Place::Form::Inst)
        open |= ~result_.scaled[value.index];
    if (const ValueId *value = violation.value(); value && value->valid())
      open |= ~result_.scaled[value->index];
  }
  if (place.form == Place::Form::Inst)
    open |= open_addends(program_.insts[place.as_inst()], violation);
  // What is equal on all ranks may be handed on, as the first block of a pipeline is.
  if (violation.is<rules::WrongSource>() && place.form == Place::Form::Inst &&
      state_.rules.resolve(program_.insts[place.as_inst()].op).transition ==
          rules::TransitionOp::CollectivePermute)
    for (const rules::Arg &arg : state_.args)
      open |= program_.types[arg.type].replicated() | program_.types[arg.type].either();
  // Counts and positions of its own are what a rank may need them for.
  if (const rules::OperandIndex *operand = violation.operand();
      operand && !violation.is<rules::RepeatedPositions>() && place.form == Place::Form::Inst &&
      operand->index < state_.args.size()) {
    ir::ShapeId shape = state_.args[operand->index].shape;
    if (shape.valid() && program_.shapes[shape].dtype != ir::DType::Unknown &&
        !ir::differentiable(program_.shapes[shape].dtype))
      open = ~AxisSet();
  }
  return open;
}

// The optimizer reads a gradient that is pending more than once.
bool SecondPass::again_in_optimizer(Place place, rules::Violation &violation) {
  const rules::OperandIndex *operand = violation.operand();
  if (place.form != Place::Form::Inst || !operand ||
      operand->index >= state_.operands.values.size() ||
      program_.insts[place.as_inst()].phase != ir::Phase::Optimizer)
    return false;
  const ValueId value = state_.operands.values[operand->index];
  if ((program_.types[state_.args[operand->index].type].of(Kind::Partial) &
       rules::axes_of(violation))
          .empty())
    return false;
  Place &first = first_pending_.try_emplace(value.index, place).first->second;
  return first != place;
}

} // namespace spmd::checker
