// Shards that a call moves where the axes are global: the innermost axes of one dimension leave it,
// or become the innermost ones of another.
#include "rules/transition_layout.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::rules {

using ir::AxisId;
using ir::AxisSet;
using ir::Extent;
using ir::KindWord;

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
        Indivisible{static_cast<int64_t>(dim), size_, problem.extent, axes_});
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
  std::optional<Splits> lengths = splits(key);
  bool innermost = fine_.size() <= at.axes.size() &&
                   llvm::makeArrayRef(at.axes).take_back(fine_.size()) == llvm::makeArrayRef(fine_);
  int64_t ranks = blocks_.ranks_of(fine_);
  if (!innermost) {
    at.local = at.local ? product(app_.program, *at.local, size_) : std::nullopt; // in wrong order
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
    at.local = lengths    ? std::optional(Extent(lengths->sum()))
               : at.local ? product(app_.program, *at.local, size_ / ranks)
                          : std::nullopt;
}

void LayoutEffect::cut_innermost(size_t dim, llvm::StringRef key) {
  BlockDim &at = dims_[dim];
  std::optional<Splits> lengths = splits(key);
  if ((lengths && !lengths->known) || blocks_.ranks_of(fine_) != size_) {
    at.axes.append(fine_.begin(), fine_.end());
    at.local = std::nullopt;
    at.uneven.reset();
    return;
  }
  std::optional<Extent> whole;
  if (ir::ShapeId global = input_.declared.global; global.valid()) {
    const ir::Shape &claimed = app_.program.shapes[global];
    if (claimed.ranked && dim < claimed.dims.size())
      whole = claimed.dims[dim];
  }
  report(blocks_.cut(at, fine_, lengths ? lengths->numbers() : std::nullopt, whole), dim, key);
}

bool LayoutEffect::take_source(const AxisEffect &effect) {
  if (effect.identity)
    return true;
  if (!effect.row)
    return false;
  Reshape reshape = reshape_of(*effect.row);
  if (reshape != Reshape::Join && reshape != Reshape::Exchange)
    return true;
  if (effect.src.form != KindWord::Form::Shard)
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
  if (reshape != Reshape::Cut && reshape != Reshape::Exchange)
    return true;
  if (effect.dst.form != KindWord::Form::Shard)
    return false;
  Dim dim = shard(effect.dst);
  if (dim)
    cut_innermost(*dim, reshape == Reshape::Cut ? "splits" : "in_splits");
  return dim.has_value();
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
