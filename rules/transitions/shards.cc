// Shards that a call moves where the axes are global: the innermost axes of one dimension leave it,
// or become the innermost ones of another.
#include "rules/violations/shards.h"
#include "rules/transitions/layout.h"
#include "rules/violations/operands.h"
#include "rules/violations/transitions.h"

#include "ir/mesh/symbols.h"
#include "ir/support/arrays.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::rules {

using ir::AxisId;
using ir::AxisSet;
using ir::Extent;
using ir::WrittenKind;

void LayoutEffect::report(const BlockMoves::Problem &problem, size_t dim, llvm::StringRef key) {
  switch (problem.form) {
  case BlockMoves::Problem::Form::None:
    return;
  case BlockMoves::Problem::Form::Lengths:
    shapes_.violations.push_back(
        ShapeMismatch{fmt::format("dimension {} and its blocks by {}", dim, key.str()),
                      problem.stated, problem.found});
    return;
  case BlockMoves::Problem::Form::Indivisible:
    shapes_.violations.push_back(
        Indivisible{static_cast<int64_t>(dim), {size_}, problem.extent, axes_});
    bad_ |= axes_ & input_.fine;
    return;
  }
}

void LayoutEffect::not_innermost(size_t dim, AxisSet axes) {
  specs_.violations.push_back(NotInnermost{
      {input_.operand}, static_cast<int64_t>(dim), print_order(app_, dims_[dim].axes), axes});
  bad_ |= axes;
  release(axes);
}

// Axes whose kinds were refused, or are not known, only count as ranks.
void LayoutEffect::join_innermost(size_t dim, llvm::StringRef key) {
  BlockDim &at = dims_[dim];
  move(TransitionMove::Form::Join, dim, key);
  std::optional<Splits> lengths = splits(key);
  bool innermost = fine_.size() <= at.axes.size() &&
                   ir::as_array(at.axes).take_back(fine_.size()) == ir::as_array(fine_);
  int64_t ranks = blocks_.ranks_of(fine_);
  if (!innermost) {
    at.local = at.local ? product(app_.program, *at.local, ir::rank_extent(app_.program, size_))
                        : std::nullopt; // in wrong order
    return not_innermost(dim, axes_ & input_.fine);
  }
  if (lengths && !lengths->known) {
    at.axes.resize(at.axes.size() - fine_.size());
    at.local = std::nullopt;
    at.uneven.reset();
    return;
  }
  bool whole = ranks == size_;
  report(blocks_.join(at, static_cast<unsigned>(fine_.size()),
                      lengths && whole ? lengths->numbers() : std::nullopt),
         dim, key);
  if (!whole)
    at.local = lengths ? std::optional(Extent(lengths->sum()))
               : at.local
                   ? product(app_.program, *at.local, ir::rank_extent(app_.program, size_ / ranks))
                   : std::nullopt;
  moves_.back().after = at;
}

void LayoutEffect::cut_innermost(size_t dim, llvm::StringRef key) {
  BlockDim &at = dims_[dim];
  move(TransitionMove::Form::Cut, dim, key);
  std::optional<Splits> lengths = splits(key);
  if ((lengths && !lengths->known) || blocks_.ranks_of(fine_) != size_) {
    at.axes.append(fine_.begin(), fine_.end());
    at.local = std::nullopt;
    at.uneven.reset();
    return;
  }
  report(blocks_.cut(at, fine_, lengths ? lengths->numbers() : std::nullopt), dim, key);
  moves_.back().after = at;
}

bool LayoutEffect::take_source(const AxisEffect &effect) {
  if (effect.identity)
    return true;
  if (!effect.row)
    return false;
  Reshape reshape = reshape_of(*effect.row);
  if (reshape != Reshape::Join && reshape != Reshape::Exchange)
    return true;
  if (effect.src.form != WrittenKind::Form::Shard)
    return false;
  Dim dim = shard(effect.src);
  if (dim)
    join_innermost(*dim, reshape == Reshape::Join ? "splits" : "out_splits");
  return dim.has_value();
}

bool LayoutEffect::put_target(const AxisEffect &effect) {
  if (effect.identity || !effect.row)
    return effect.identity;
  Reshape reshape = reshape_of(*effect.row);
  if (reshape == Reshape::Keep)
    move(TransitionMove::Form::Keep, 0);
  if (reshape != Reshape::Cut && reshape != Reshape::Exchange)
    return true;
  if (effect.dst.form != WrittenKind::Form::Shard)
    return false;
  Dim dim = shard(effect.dst);
  if (dim)
    cut_innermost(*dim, reshape == Reshape::Cut ? "splits" : "in_splits");
  return dim.has_value();
}

llvm::SmallVector<int64_t, 8> reorder_sources(const ir::Mesh &mesh, llvm::ArrayRef<AxisId> axes,
                                              ShardLists before, ShardLists after) {
  AxisSet moved;
  for (AxisId axis : axes)
    moved |= axis;
  // The axes of one end that count the same thing: the blocks of a dimension, or copies.
  auto counting = [&](ShardLists lists, size_t dim) {
    llvm::SmallVector<AxisId, 4> counting;
    AxisSet copies = moved;
    for (size_t d = 0; d < lists.size(); ++d)
      for (AxisId axis : lists[d])
        if (moved.contains(axis)) {
          copies -= axis;
          if (d == dim)
            counting.push_back(axis);
        }
    if (dim == lists.size())
      for (AxisId axis : copies)
        counting.push_back(axis);
    return counting;
  };
  int64_t ranks = size_of(mesh, moved);
  llvm::SmallVector<int64_t, 8> sources;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    std::array<int64_t, ir::kMaxAxes> at{}, from{};
    int64_t left = rank, source = 0;
    for (AxisId axis : llvm::reverse(axes)) {
      at[axis.index] = left % mesh[axis].size();
      left /= mesh[axis].size();
    }
    for (size_t dim = 0; dim <= before.size(); ++dim) {
      int64_t index = 0;
      for (AxisId axis : counting(after, dim))
        index = index * mesh[axis].size() + at[axis.index];
      llvm::SmallVector<AxisId, 4> old = counting(before, dim);
      for (AxisId axis : llvm::reverse(old)) {
        from[axis.index] = index % mesh[axis].size();
        index /= mesh[axis].size();
      }
    }
    for (AxisId axis : axes)
      source = source * mesh[axis].size() + from[axis.index];
    sources.push_back(source);
  }
  return sources;
}

// Blocks change ranks and no rank changes its shape: as many ranks leave a dimension as enter it.
bool LayoutEffect::run_joint(bool global) {
  const CallAxes &call = input_.call.axes;
  axes_ = call.all();
  order_.clear();
  for (const WrittenAxis &written : call.written)
    order_.append(written.axes.begin(), written.axes.end());
  if (input_.fine != axes_)
    return unplaced();
  llvm::SmallVector<int64_t, 6> leave(dims_.size(), 1), enter(dims_.size(), 1);
  llvm::SmallVector<llvm::SmallVector<AxisId, 2>, 6> before, after;
  for (const BlockDim &dim : dims_)
    before.push_back(dim.axes);
  llvm::SmallVector<llvm::SmallVector<AxisId, 2>, 6> entering(dims_.size());
  for (size_t i = 0; i < call.written.size(); ++i) {
    const AxisEffect &effect = input_.effects[i];
    Dim from = 0, to = 0;
    if (effect.src.form == WrittenKind::Form::Shard && (from = shard(effect.src)))
      leave[*from] *= call.written[i].size;
    if (effect.dst.form == WrittenKind::Form::Shard && (to = shard(effect.dst))) {
      enter[*to] *= call.written[i].size;
      entering[*to].append(call.written[i].axes.begin(), call.written[i].axes.end());
    }
    if (!from || !to)
      return unplaced();
  }
  for (size_t dim = 0; dim < dims_.size(); ++dim) {
    if (leave[dim] != enter[dim]) {
      shapes_.violations.push_back(
          ShapeMismatch{fmt::format("the ranks that leave and that enter dimension {}", dim),
                        std::to_string(leave[dim]), std::to_string(enter[dim])});
      return unplaced();
    }
    AxisSet moving;
    for (AxisId axis : dims_[dim].axes)
      if (axes_.contains(axis))
        moving |= axis;
    size_t count = static_cast<size_t>(moving.size());
    if (llvm::any_of(ir::as_array(dims_[dim].axes).take_back(count),
                     [&](AxisId axis) { return !axes_.contains(axis); })) {
      not_innermost(dim, moving);
      return unplaced();
    }
    if (global && dims_[dim].uneven && (count || !entering[dim].empty())) {
      shapes_.violations.push_back(ShapeMismatch{
          fmt::format("the blocks of dimension {}", dim), print(dims_[dim].uneven->block),
          fmt::format("those that follow, of {}", print(dims_[dim].uneven->global)), moving});
      return unplaced();
    }
    dims_[dim].axes.resize(dims_[dim].axes.size() - count);
    if (global)
      dims_[dim].axes.append(entering[dim].begin(), entering[dim].end());
    after.push_back(dims_[dim].axes);
  }
  effect_ = &input_.effects.front();
  move(TransitionMove::Form::Keep, 0);
  if (global)
    moves_.back().sources = reorder_sources(app_.mesh(), moves_.back().axes, before, after);
  return true;
}

// The innermost axis leaves first, the outermost arrives first.
bool LayoutEffect::run_global(llvm::ArrayRef<Step> steps) {
  for (const Step &step : llvm::reverse(steps)) {
    begin(step);
    if (!take_source(*step.effect))
      return unplaced();
  }
  for (const Step &step : steps) {
    begin(step);
    if (!put_target(*step.effect))
      return unplaced();
  }
  return true;
}

} // namespace spmd::rules
