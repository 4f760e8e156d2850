// What a transition does to the dimensions of its operand: V stacks or unbinds one, S(i) joins or
// cuts dimension i, and the axes that shard a dimension go with it. An extent that cannot be
// determined is left to the declared shape.
#include "rules/transitions/layout.h"
#include "rules/violations/operands.h"
#include "rules/violations/shards.h"
#include "rules/violations/transitions.h"

#include "ir/claims.h"
#include "ir/dialect/print_type.h"
#include "ir/mesh/symbols.h"
#include "ir/support/arrays.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::rules {

using ir::AxisId;
using ir::AxisSet;
using ir::Extent;
using ir::WrittenKind;

Reshape reshape_of(const Transition &row) {
  if (row.collective == Collective::AllToAll)
    return Reshape::Exchange;
  if (row.collective == Collective::AllGather || row.local_step == LocalStep::PlaceOwn)
    return Reshape::Join;
  if (row.collective == Collective::ReduceScatter || row.local_step == LocalStep::TakeOwnSlice)
    return Reshape::Cut;
  return Reshape::Keep;
}

LayoutEffect::LayoutEffect(const LayoutInput &input, Outcome &specs, Outcome &shapes)
    : input_(input), app_(input.app), specs_(specs), shapes_(shapes),
      blocks_(app_.program, app_.mesh()) {
  const TensorInfo &arg = app_.args[input.operand];
  const ir::Shape *operand = app_.shape(arg);
  ranked_ = operand && operand->ranked;
  dims_.resize(ranked_ ? operand->dims.size() : ir::kMaxDims);
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (ranked_)
      dims_[i].local = operand->dims[i];
    dims_[i].axes = ir::shards_of(input.type, static_cast<unsigned>(i));
  }
  if (operand)
    dtype_ = operand->dtype;
  if (arg.sizes.valid())
    for (const ir::UnevenDim &each : app_.program.shard_sizes[arg.sizes].dims)
      if (each.dim < dims_.size())
        dims_[each.dim].uneven = each;
  if (ir::ShapeId shape = input.declared.shape; shape.valid() && app_.program.shapes[shape].ranked)
    declared_ = app_.program.shapes[shape];
  release(input.call.axes.all() - input.fine);
}

// Forgets the axes. What becomes of uneven blocks that they cut together with others is not known.
void LayoutEffect::release(AxisSet axes) {
  for (BlockDim &dim : dims_) {
    size_t before = dim.axes.size();
    llvm::erase_if(dim.axes, [&](AxisId axis) { return axes.contains(axis); });
    if (dim.axes.size() == before || !dim.uneven)
      continue;
    dim.uneven.reset();
    for (AxisId axis : dim.axes)
      bad_ |= axis;
  }
}

LayoutEffect::Dim LayoutEffect::place(int64_t dim, size_t rank, llvm::StringRef key) {
  if (dim < 0 && !ranked_)
    return std::nullopt;
  int64_t from_front = dim < 0 ? dim + static_cast<int64_t>(rank) : dim;
  if (from_front >= 0 && from_front < static_cast<int64_t>(rank))
    return static_cast<size_t>(from_front);
  shapes_.violations.push_back(
      AttributeMismatch{key.str(), fmt::format("one of {} dimensions", rank)});
  return std::nullopt;
}

LayoutEffect::Dim LayoutEffect::named(llvm::StringRef key, size_t rank) {
  const ir::AttrValue *attr = app_.attr(key);
  bool other = attr && attr->form != ir::AttrForm::Integer;
  return place(attr && !other ? attr->as_integer() : 0, other ? 0 : rank, key);
}

LayoutEffect::Dim LayoutEffect::shard(const WrittenKind &word) {
  if (word.form == WrittenKind::Form::Shard)
    return place(word.dim, dims_.size(), ir::print(word));
  return named("dim", dims_.size());
}

std::optional<Splits> LayoutEffect::splits(llvm::StringRef key) {
  const ir::AttrValue *attr = app_.attr(key);
  if (!attr || attr->form != ir::AttrForm::List)
    return std::nullopt;
  const ir::AttrList &list = app_.program.lists[attr->as<ir::AttrListId>()];
  Splits splits;
  int64_t sum = 0;
  Extent ranks = ir::rank_extent(app_.program, size_);
  auto what = [&] { return fmt::format("the number of lengths in `{}` and of ranks", key.str()); };
  bool right = may_be_equal(app_.program, static_cast<int64_t>(list.items.size()), ranks,
                            shapes_.undecided, what);
  for (const ir::AttrValue &item : list.items) {
    bool number = item.form == ir::AttrForm::Integer;
    right &= !number || item.as_integer() >= 0;
    splits.known &= number && !__builtin_add_overflow(sum, item.as_integer(), &sum);
    splits.lengths.push_back(splits.known ? item.as_integer() : 0);
  }
  if (!right)
    shapes_.violations.push_back(
        AttributeMismatch{key.str(), fmt::format("{} block lengths", print(ranks))});
  splits.known &= right;
  return splits;
}

void LayoutEffect::need_equal(std::string what, Extent expected, Extent found) {
  if (!may_be_equal(app_.program, expected, found, shapes_.undecided, [&] { return what; }))
    shapes_.violations.push_back(ShapeMismatch{std::move(what), print(expected), print(found)});
}

// Data follow where extents lead.
void LayoutEffect::move(TransitionMove::Form form, size_t dim, llvm::StringRef key) {
  const TransitionCall &call = input_.call;
  TransitionMove made{form, effect_->row};
  made.combiner = call.combiner == ir::Combiner::Avg ? ir::Combiner::Avg : call.asked(effect_->src);
  made.step = step_;
  made.dim = dim;
  made.axes = order_;
  const ir::AttrValue *attr = key.empty() ? nullptr : app_.attr(key);
  if (attr && attr->form == ir::AttrForm::List)
    for (const ir::AttrValue &item : app_.program.lists[attr->as<ir::AttrListId>()].items)
      made.lengths.push_back(item.form == ir::AttrForm::Integer ? item.as_integer() : 0);
  moves_.push_back(std::move(made));
}

void LayoutEffect::begin(const Step &step) {
  effect_ = step.effect;
  step_ = step.index;
  order_ = step.axes;
  size_ = step.size;
  axes_ = {};
  fine_.clear();
  for (AxisId axis : order_) {
    axes_ |= axis;
    if (input_.fine.contains(axis))
      fine_.push_back(axis);
  }
}

// The list along the axes of the call is joined or cut along a dimension of what is, on other axes,
// one tensor: that must be whole, or the axes be the innermost ones that a region made local.
void LayoutEffect::touch(size_t dim, bool joins, bool removes) {
  BlockDim &at = dims_[dim];
  if (order_.empty() && !removes)
    return;
  AxisSet others, own;
  for (AxisId axis : at.axes)
    (axes_.contains(axis) ? own : others) |= axis;
  others &= app_.global_axes();
  bool innermost = joins && order_.size() <= at.axes.size() &&
                   ir::as_array(at.axes).take_back(order_.size()) == ir::as_array(order_);
  if (others && !innermost) {
    if (joins && own)
      return not_innermost(dim, axes_);
    specs_.violations.push_back(
        UnwholeDimension{{input_.operand}, static_cast<int64_t>(dim), others});
    bad_ |= axes_ | others;
  }
}

void LayoutEffect::lengthen(size_t dim, llvm::StringRef key) {
  move(TransitionMove::Form::Join, dim, key);
  touch(dim, true);
  BlockDim &at = dims_[dim];
  bool recorded = at.uneven && fine_.size() == order_.size() && order_.size() <= at.axes.size() &&
                  ir::as_array(at.axes).take_back(order_.size()) == ir::as_array(order_);
  if (std::optional<Splits> lengths = splits(key))
    at.local = lengths->known ? std::optional(Extent(lengths->sum())) : std::nullopt;
  else if (recorded)
    blocks_.join(at, static_cast<unsigned>(order_.size()), std::nullopt);
  else if (at.local)
    at.local = product(app_.program, *at.local, ir::rank_extent(app_.program, size_));
}

void LayoutEffect::divide(size_t dim) {
  std::optional<Extent> &extent = dims_[dim].local;
  if (!extent || size_ == 1)
    return;
  Extent ranks = ir::rank_extent(app_.program, size_);
  auto what = [&] {
    return fmt::format("the rest of dimension {}, cut into {} pieces, and 0", dim, print(ranks));
  };
  if (may_divide(app_.program, *extent, ranks, shapes_.undecided, what)) {
    extent = exact_quotient(app_.program, *extent, ranks);
    return;
  }
  shapes_.violations.push_back(
      Indivisible{static_cast<int64_t>(dim), {size_}, print(*extent), axes_});
  bad_ |= axes_ & input_.fine;
  if (extent->is_number() && !is_declared_rank(dims_.size())) // so that what follows has a shape
    extent = Extent((extent->number() + size_ - 1) / size_);
  else
    extent = std::nullopt;
}

void LayoutEffect::shorten(size_t dim, llvm::StringRef key) {
  move(TransitionMove::Form::Cut, dim, key);
  touch(dim, false);
  std::optional<Splits> lengths = splits(key);
  if (!lengths)
    return divide(dim);
  std::optional<Extent> &extent = dims_[dim].local;
  if (lengths->known && extent)
    need_equal(fmt::format("dimension {} and the sum of {}", dim, key.str()), lengths->sum(),
               *extent);
  // The own block differs from rank to rank.
  extent = std::nullopt;
}

void LayoutEffect::insert(size_t dim) {
  move(TransitionMove::Form::Stack, dim);
  BlockDim made;
  made.local = ir::rank_extent(app_.program, size_);
  dims_.insert(dims_.begin() + static_cast<ptrdiff_t>(dim), std::move(made));
  if (!ranked_)
    dims_.pop_back();
}

void LayoutEffect::unbind(size_t dim) {
  move(TransitionMove::Form::Unbind, dim);
  touch(dim, false, true);
  std::string axes = ir::print_axes(app_.program, app_.op_context().mesh, axes_);
  if (dims_[dim].local)
    need_equal(fmt::format("dimension {} and the number of ranks of {}", dim, axes),
               ir::rank_extent(app_.program, size_), *dims_[dim].local);
  dims_.erase(dims_.begin() + static_cast<ptrdiff_t>(dim));
  if (!ranked_)
    dims_.emplace_back();
}

bool LayoutEffect::join(const AxisEffect &effect) {
  if (stacks(effect)) {
    Dim dim = named("dim", dims_.size() + ranked_);
    if (dim)
      insert(*dim);
    return dim.has_value();
  }
  Dim dim = shard(effect.src);
  if (dim)
    lengthen(*dim, "splits");
  return dim.has_value();
}

bool LayoutEffect::cut(const AxisEffect &effect) {
  bool unbound = unbinds(effect);
  Dim dim = unbound ? named("dim", dims_.size()) : shard(effect.dst);
  if (dim && unbound)
    unbind(*dim);
  else if (dim)
    shorten(*dim, "splits");
  return dim.has_value();
}

// Blocks whose lengths are stated lie one after another, whatever the ends are called.
bool LayoutEffect::exchange_stated(size_t split, size_t join) {
  shorten(split, "in_splits");
  lengthen(join, "out_splits");
  return true;
}

// Blocks change places; both ends are one dimension unless attributes say otherwise.
bool LayoutEffect::exchange_unstated() {
  Dim split = named("split_dim", dims_.size()), join = named("concat_dim", dims_.size());
  if (!split || !join)
    return false;
  if (*split == *join && !states_lengths()) {
    exchange_in_place(*split);
    return true;
  }
  shorten(*split, "in_splits");
  lengthen(*join, "out_splits");
  return true;
}

// Blocks of one dimension change places: its extent stays, and must divide.
void LayoutEffect::exchange_in_place(size_t dim) {
  std::optional<Extent> before = dims_[dim].local;
  bool symbolic = before && !before->is_number();
  if (symbolic)
    dims_[dim].local = std::nullopt; // the data say how it is cut
  shorten(dim, "in_splits");
  move(TransitionMove::Form::Join, dim);
  std::optional<Extent> &after = dims_[dim].local;
  // And what comes of it, where that is stated with a symbol.
  bool stated = is_declared_rank(dims_.size()) && (symbolic || !declared_->dims[dim].is_number());
  after = (after || symbolic) && !stated ? before : std::nullopt;
}

bool LayoutEffect::exchange(const AxisEffect &effect) {
  if (!effect.src_stated || !effect.dst_stated)
    return exchange_unstated();
  if (effect.src.form == WrittenKind::Form::Shard) {
    Dim join = shard(effect.src), split = shard(effect.dst);
    if (!join || !split)
      return false;
    if (*join != *split || states_lengths())
      return exchange_stated(*split, *join);
    exchange_in_place(*split);
    return true;
  }
  Dim split = named("split_dim", dims_.size()), stack = named("concat_dim", dims_.size());
  if (!split || !stack)
    return false;
  if (states_lengths())
    return exchange_stated(*split, *stack);
  unbind(*split);
  insert(*stack);
  return true;
}

bool LayoutEffect::apply(const AxisEffect &effect) {
  if (effect.identity)
    return true;
  if (!effect.row)
    return false;
  bool done = true;
  switch (reshape_of(*effect.row)) {
  case Reshape::Keep:
    move(TransitionMove::Form::Keep, 0);
    break;
  case Reshape::Join:
    done = join(effect);
    break;
  case Reshape::Cut:
    done = cut(effect);
    break;
  case Reshape::Exchange:
    done = exchange(effect);
    break;
  }
  release(axes_);
  return done;
}

llvm::SmallVector<LayoutEffect::Step, 2> LayoutEffect::steps() const {
  llvm::SmallVector<Step, 2> steps;
  const CallAxes &axes = input_.call.axes;
  bool uniform = llvm::all_of(input_.effects,
                              [&](const AxisEffect &each) { return each == input_.effects[0]; });
  for (size_t i = 0; i < input_.effects.size(); ++i) {
    if (i == 0 || !uniform)
      steps.push_back({&input_.effects[i],
                       {},
                       uniform ? axes.size() : axes.written[i].size,
                       static_cast<unsigned>(i)});
    steps.back().axes.append(axes.written[i].axes.begin(), axes.written[i].axes.end());
  }
  return steps;
}

// The innermost axis joins first, the outermost cuts first.
bool LayoutEffect::run_local(llvm::ArrayRef<Step> steps) {
  bool joins =
      !steps.empty() && steps[0].effect->row && reshape_of(*steps[0].effect->row) == Reshape::Join;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step &step = steps[joins ? steps.size() - 1 - i : i];
    begin(step);
    bool keeps = step.effect->identity ||
                 (step.effect->row && reshape_of(*step.effect->row) == Reshape::Keep);
    AxisSet others = shard_axes() - axes_;
    // Without a rank nobody can say whether an unstated word makes or takes a dimension.
    bool known = ranked_ || keeps || (step.effect->src_stated && step.effect->dst_stated);
    bool done = apply(*step.effect);
    if (!known || (!done && step.effect->row))
      bad_ |= others;
    if (!done)
      return false;
  }
  return true;
}

void LayoutEffect::compare() {
  bool differs = dims_.size() != declared_->dims.size();
  for (size_t i = 0; i < dims_.size() && !differs; ++i) {
    auto what = [&] {
      return fmt::format("the declared and the actual extent of dimension {} of the result", i);
    };
    differs = dims_[i].local && !may_be_equal(app_.program, declared_->dims[i], *dims_[i].local,
                                              shapes_.undecided, what);
  }
  if (!differs)
    return;
  auto text = [&](size_t rank, const auto &extent_of) {
    std::string list;
    for (size_t i = 0; i < rank; ++i)
      list += fmt::format("{}{}", i ? ", " : "", extent_of(i));
    return fmt::format("[{}]", list);
  };
  auto found = [&](size_t i) { return dims_[i].local ? print(*dims_[i].local) : "?"; };
  shapes_.violations.push_back(ShapeMismatch{
      "the result", text(dims_.size(), found),
      text(declared_->dims.size(), [&](size_t i) { return print(declared_->dims[i]); })});
}

ir::ShapeId LayoutEffect::shape() {
  ir::Shape shape;
  shape.dtype = dtype_;
  if (declared_) {
    compare();
    if (shape.dtype == ir::DType::Unknown || app_.attr("out_dtype"))
      shape.dtype = declared_->dtype;
  }
  bool stated = is_declared_rank(dims_.size());
  for (size_t i = 0; i < dims_.size(); ++i) {
    const std::optional<Extent> &local = dims_[i].local;
    if (!local && !stated)
      return {};
    bool known = local && local->is_number();
    shape.dims.push_back(known || !stated ? *local : declared_->dims[i]);
  }
  return app_.program.shapes.add(std::move(shape));
}

ir::ShardSizesId LayoutEffect::sizes() {
  ir::ShardSizes sizes;
  for (size_t i = 0; i < dims_.size(); ++i)
    if (dims_[i].uneven && !dims_[i].axes.empty()) {
      sizes.dims.push_back(*dims_[i].uneven);
      sizes.dims.back().dim = static_cast<unsigned>(i);
    }
  return sizes.dims.empty() ? ir::ShardSizesId{} : app_.program.shard_sizes.add(std::move(sizes));
}

TransitionLayout LayoutEffect::run() {
  llvm::SmallVector<Step, 2> listed = steps();
  bool global = llvm::any_of(input_.effects, [](const AxisEffect &each) { return each.global; });
  bool done = input_.call.joint() ? run_joint(global)
              : global            ? run_global(listed)
                                  : run_local(listed);
  TransitionLayout layout;
  if (done && ranked_)
    layout.shape = shape();
  // A dimension beyond the last one that a spec can name.
  for (size_t i = ir::kMaxDims; i < dims_.size(); ++i)
    for (AxisId axis : dims_[i].axes)
      bad_ |= axis;
  dims_.resize(std::min<size_t>(dims_.size(), ir::kMaxDims));
  layout.sizes = sizes();
  for (BlockDim &dim : dims_)
    layout.shards.push_back(std::move(dim.axes));
  layout.bad = bad_;
  layout.moves = std::move(moves_);
  return layout;
}

TransitionLayout transition_layout(const LayoutInput &input, Outcome &specs, Outcome &shapes) {
  return LayoutEffect(input, specs, shapes).run();
}

} // namespace spmd::rules
