// What is judged of an instruction beside its rule, and what is found out for that.
#include "checker/gradual/second_pass/second_pass.h"

#include "checker/definitions.h"
#include "checker/walk/gradients/search.h"

#include "rules/bind.h"
#include "rules/kinds/scale.h"
#include "rules/shapes/attrs.h"
#include "rules/shards/remesh.h"
#include "rules/transitions/call.h"
#include "rules/violations/gradients.h"
#include "rules/violations/norms.h"
#include "rules/violations/operands.h"
#include "rules/violations/steps/edges.h"
#include "rules/violations/steps/offsets.h"
#include "rules/violations/steps/positions.h"
#include "rules/violations/steps/rings.h"
#include "rules/violations/transitions.h"

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
  const ir::Inst &inst = program_.insts[id];
  if (app.op.transition != rules::TransitionOp::Convert || app.args.size() != 1 ||
      inst.result_count != 1 || app.args[0].shape == result_.shapes[inst.first_result.index])
    return;
  const Type &type = app.type(app.args[0]);
  for (AxisId axis : type.sharded() & rules::named_axes(app))
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

} // namespace spmd::checker
