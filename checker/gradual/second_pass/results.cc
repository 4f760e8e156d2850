// What becomes of results: types with what no rule knows, and what of them is proved.
#include "checker/gradual/second_pass/second_pass.h"

#include "checker/walk/gradients/search.h"

#include "rules/bind.h"
#include "rules/boundary/claims.h"
#include "rules/transitions/call.h"
#include "rules/violations/gradients.h"

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
  keep_equal_addends(inst, value, type);
  follow_means(id, value, index);
  follow_weights(inst, value);
  follow_doubts(id, value);
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
  // One row of each rank that a view has put into the dimension behind it belongs there, or into
  // the one ahead of it: not there, where a parameter that all ranks have has that dimension.
  const rules::Arg *viewed =
      row->factors == rules::reshape_factors && state_.args.size() == 1 ? &state_.args[0] : nullptr;
  for (AxisId axis : viewed &&of.valid() ? type.sharded() : AxisSet()) {
    const std::optional<unsigned> from = program_.types[viewed->type].dim(axis);
    const bool one = from && program_.shapes[of].dims[*from] == ir::Extent(1);
    if (one && program_.shapes[made].dims[*type.dim(axis)] != ir::Extent(1) &&
        gradual_.cuts().is_whole(value, *type.dim(axis), axis)) {
      type.drop_shards(axis);
      type.set_unknown(axis);
    }
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

// Where each rank has a loss of its own, a term of it that is equal on all ranks, as one that keeps
// weights small, gets the same gradient on each: an addend, as of what is summed over the ranks.
void SecondPass::keep_equal_addends(const ir::Inst &inst, ValueId value, Type &type) {
  const rules::ResolvedOp &op = state_.rules.resolve(inst.op);
  const bool transits = op.form == rules::OpForm::Transition;
  const rules::Application app{program_,    op, inst.attrs, inst.context, state_.operands.slots,
                               state_.args, {}};
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
      equal |= equal_gradients_.lookup(operand.index);
  }
  equal &= type.equal() - type.zero();
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
    equal_gradients_[value.index] = equal;
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
  // How tensors lie behind one another is no question of cuts; that they are one block, is.
  proved |= (axes & before & known_pieces(value, type.mesh())) - type.sharded();
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

// What is divided by what may be too large may be too small.
void SecondPass::follow_doubts(InstId id, ValueId value) {
  AxisSizeNumbers::Doubt doubt = gradual_.numbers().doubt(id, result_.types);
  const bool divides = state_.rules.resolve(program_.insts[id].op).computes(Computes::Quotient);
  for (uint32_t i = 0; i < state_.operands.values.size(); ++i) {
    const auto found = doubts_.find(state_.operands.values[i].index);
    if (found == doubts_.end() || now_.unread.contains(i))
      continue;
    const auto [larger, smaller] = found->second;
    doubt.add(divides && i == 1 ? AxisSizeNumbers::Doubt{smaller, larger}
                                : AxisSizeNumbers::Doubt{larger, smaller});
  }
  if (doubt && is_float(value))
    doubts_[value.index].add(doubt);
}

} // namespace spmd::checker
