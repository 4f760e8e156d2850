// In which order joined blocks lie, and by which axes they are cut then.
#include "checker/gradual/second_pass/blocks/joined_blocks.h"

#include "rules/apply.h"
#include "rules/shapes/attrs.h"
#include "rules/transitions/call.h"

#include "ir/claims.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;

// The axes along which a result is a list of blocks, or of their parts, that was put together
// again in its order.
AxisSet JoinedBlocks::joined(uint32_t index) const {
  AxisSet axes;
  if (index >= joined_.size() || !joined_[index])
    return axes;
  const Type &of = program_.types[result_.types[joined_[index]->of.index]];
  const llvm::SmallVector<AxisId, 2> cuts = ir::shards_of(of, joined_[index]->at);
  const size_t outer = cuts.size() - std::min<size_t>(cuts.size(), joined_[index]->axes.size());
  for (AxisId axis : llvm::drop_begin(cuts, outer))
    if (joined_[index]->axes.contains(axis))
      axes |= axis;
  return axes;
}

// The dimensions of such a result that other axes cut in what it was made of: by which, and where.
AxisSet JoinedBlocks::cut_beside(uint32_t index, Type &type) const {
  const AxisSet axes = joined(index);
  if (axes.empty() || !joined_[index]->moved)
    return {};
  const BlockLists::Joined &joined = *joined_[index];
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
  type.renumber_shard_orders();
  for (AxisId axis : whole)
    cut(type, axis, joined.moved->first);
  for (AxisId axis : blocks)
    cut(type, axis, *joined.dim);
  return beside;
}

void JoinedBlocks::begin() {
  joined_.clear();
  cut_beside_ = exchanged_ = {};
}

// Blocks from inside of a dimension do not join to it in the order of the ranks.
void JoinedBlocks::judge_order(InstId id, const rules::Application &app) {
  if (app.op.form != rules::OpForm::Transition)
    return;
  for (size_t i = 0; i < state_.operands.values.size() && i < state_.args.size(); ++i)
    now_.open |= alternating_.lookup(state_.operands.values[i].index) &
                 app.type(app.args[i]).sharded() & rules::communicated_axes(app);
  if (!(app.attr("dim") || app.attr("split_dim")))
    return;
  llvm::SmallVector<ValueId, 4> values(state_.operands.values.begin(),
                                       state_.operands.values.end());
  for (uint32_t r = 0; r < program_.insts[id].result_count; ++r)
    values.push_back(program_.insts[id].result(r));
  for (AxisId axis : rules::communicated_axes(app))
    if (llvm::any_of(values, [&](ValueId value) { return gradual_.cuts().inside(value, axis); }))
      now_.open |= axis;
}

// Until they are taken apart again.
void JoinedBlocks::follow_alternating(const rules::Application &app,
                                      llvm::ArrayRef<ValueId> results) {
  const rules::FactorsRule factors = app.op.row ? app.op.row->factors : nullptr;
  if (factors == rules::split_factors || factors == rules::slice_factors)
    return;
  AxisSet axes, once;
  for (ValueId operand : state_.operands.values)
    axes |= alternating_.lookup(operand.index);
  if (factors == rules::cat_factors && !app.args.empty() && results.size() == 1 &&
      gradual_.pieces().of(results[0]).empty()) {
    const ir::Shape *first = app.shape(app.args[0]);
    const auto dims = first ? rules::placed_dims(app, rules::DefaultDim::First, first->dims.size())
                            : std::nullopt;
    for (const rules::TensorInfo &arg : app.args)
      for (AxisId axis : dims && dims->size() == 1 ? app.type(arg).sharded() : AxisSet())
        if (app.type(arg).dim(axis) == dims->front())
          (once.contains(axis) ? axes : once) |= axis;
  }
  for (ValueId result : axes ? results : llvm::ArrayRef<ValueId>())
    alternating_[result.index] = axes;
}

void JoinedBlocks::judge(const rules::Application &app, llvm::ArrayRef<ValueId> results) {
  joined_.clear();
  const AllToAllViews &stacks = gradual_.cuts().positions().stacks();
  exchanged_ = {};
  if (results.size() == 1 && stacks.is_joined(results[0])) {
    const Type &sent = app.type(app.args[0]);
    const AxisSet axes = rules::communicated_axes(app);
    for (AxisId axis : axes)
      if (std::optional<unsigned> dim = sent.dim(axis))
        for (AxisId other : ir::shards_of(sent, *dim))
          exchanged_ |= other;
    exchanged_ -= axes;
  }
  follow_alternating(app, results);
  for (uint32_t r = 0; r < results.size(); ++r) {
    joined_.push_back(lists_.follow(app, state_.operands.values, results[r], r, results.size()));
    if (const BlockLists::Joined *joined = stacks.joined(results[r]))
      joined_.back() = *joined;
  }
}

void JoinedBlocks::cut_joined(uint32_t index, Type &type) const {
  if (AxisSet axes = joined(index); axes && joined_[index]->dim)
    for (AxisId axis : axes - type.sharded())
      cut(type, axis, *joined_[index]->dim);
  else if (axes) { // with a rank's own block among those that were gathered
    const AxisSet own = axes & (type.of(Kind::Varying) | type.unknown);
    type.drop_shards(own);
    type.set_kind(own, Kind::Replicate);
    type.renumber_shard_orders();
  }
}

void JoinedBlocks::keep(uint32_t index, Type &type) {
  type.set_unknown(exchanged_);
  cut_beside_ = cut_beside(index, type);
}

AxisSet JoinedBlocks::proved(uint32_t index, AxisSet known) const {
  const AxisSet whole = joined(index) | cut_beside_;
  return whole ? whole & known & result_.proved[joined_[index]->of.index] : AxisSet();
}

} // namespace spmd::checker
