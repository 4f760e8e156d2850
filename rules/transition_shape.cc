// What a transition does to the local shape: V stacks or unbinds a dimension, S(i) joins or cuts
// dimension i. An extent that cannot be told is left to the declared shape.
#include "rules/transition_call.h"

#include "ir/text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::rules {
namespace {

using ir::Extent;
using ir::KindWord;

enum class Reshape : uint8_t { Keep, Join, Cut, Exchange };

Reshape reshape_of(const Transition &row) {
  if (row.wire == Wire::AllToAll)
    return Reshape::Exchange;
  if (row.wire == Wire::AllGather || row.act == Act::PlaceOwn)
    return Reshape::Join;
  if (row.wire == Wire::ReduceScatter || row.act == Act::TakeOwnSlice)
    return Reshape::Cut;
  return Reshape::Keep;
}

// Block lengths that the call states, `splits` and the like; a part that is no number makes the sum
// unknown.
struct Splits {
  size_t count = 0;
  std::optional<int64_t> sum;
};

class ShapeEffect {
public:
  ShapeEffect(const Application &app, const ir::Shape &operand, ir::ShapeId declared, Outcome &out)
      : app_(app), operand_(operand), out_(out) {
    dims_.assign(operand.dims.begin(), operand.dims.end());
    if (declared.valid() && app.program.shapes[declared].ranked)
      declared_ = app.program.shapes[declared];
  }

  // One call over ranks of `axes`, `size` in all. False if nothing can be said of the result.
  bool apply(const AxisEffect &effect, ir::AxisSet axes, int64_t size);
  ir::ShapeId finish();

private:
  using Dim = std::optional<size_t>;

  bool join(const AxisEffect &effect);
  bool cut(const AxisEffect &effect);
  bool exchange(const AxisEffect &effect);
  bool exchange_erased();
  bool exchange_stated(size_t split, size_t join);
  bool states_lengths() const { return app_.attr("in_splits") || app_.attr("out_splits"); }

  // The dimension that an attribute names among `rank`; reported if it is none.
  Dim named(llvm::StringRef key, size_t rank);
  Dim shard(const KindWord &word);
  Dim place(int64_t dim, size_t rank, llvm::StringRef key);
  std::optional<Splits> splits(llvm::StringRef key);

  void lengthen(size_t dim, llvm::StringRef key);
  void shorten(size_t dim, llvm::StringRef key);
  void divide(size_t dim);
  void insert(size_t dim) { dims_.insert(dims_.begin() + dim, Extent(size_)); }
  void unbind(size_t dim);
  void need_equal(std::string what, int64_t expected, Extent found);
  void compare();

  // Whether an erased end is a stack: only the declared rank can say so.
  bool is_declared_rank(size_t rank) const { return declared_ && declared_->dims.size() == rank; }
  bool stacks(const AxisEffect &effect) const {
    if (effect.src_stated)
      return effect.src.form != KindWord::Form::Shard;
    return declared_ ? is_declared_rank(dims_.size() + 1) : effect.row->wire == Wire::None;
  }
  bool unbinds(const AxisEffect &effect) const {
    if (effect.dst_stated)
      return effect.dst.form != KindWord::Form::Shard;
    return declared_ && !dims_.empty() && is_declared_rank(dims_.size() - 1);
  }
  std::string print(Extent extent) const {
    return ir::print(extent, app_.program.exprs, app_.program.strings);
  }

  const Application &app_;
  ir::Shape operand_; // copies: interning moves shapes
  std::optional<ir::Shape> declared_;
  Outcome &out_;
  ir::AxisSet axes_;
  int64_t size_ = 1;
  llvm::SmallVector<std::optional<Extent>, 6> dims_;
};

ShapeEffect::Dim ShapeEffect::place(int64_t dim, size_t rank, llvm::StringRef key) {
  int64_t from_front = dim < 0 ? dim + static_cast<int64_t>(rank) : dim;
  if (from_front >= 0 && from_front < static_cast<int64_t>(rank))
    return static_cast<size_t>(from_front);
  out_.violations.push_back(
      AttributeMismatch{key.str(), fmt::format("one of {} dimensions", rank)});
  return std::nullopt;
}

ShapeEffect::Dim ShapeEffect::named(llvm::StringRef key, size_t rank) {
  const ir::AttrValue *attr = app_.attr(key);
  bool other = attr && attr->form != ir::AttrForm::Integer;
  return place(attr && !other ? attr->as_integer() : 0, other ? 0 : rank, key);
}

ShapeEffect::Dim ShapeEffect::shard(const KindWord &word) {
  if (word.form == KindWord::Form::Shard)
    return place(word.dim, dims_.size(), ir::print(word));
  return named("dim", dims_.size());
}

std::optional<Splits> ShapeEffect::splits(llvm::StringRef key) {
  const ir::AttrValue *attr = app_.attr(key);
  if (!attr || attr->form != ir::AttrForm::List)
    return std::nullopt;
  const ir::AttrList &list = app_.program.lists[attr->as<ir::AttrListId>()];
  Splits splits{list.items.size(), 0};
  for (const ir::AttrValue &item : list.items) {
    int64_t sum = 0;
    bool number = item.form == ir::AttrForm::Integer && splits.sum &&
                  !__builtin_add_overflow(*splits.sum, item.as_integer(), &sum);
    splits.sum = number ? std::optional(sum) : std::nullopt;
  }
  if (static_cast<int64_t>(splits.count) == size_)
    return splits;
  out_.violations.push_back(AttributeMismatch{key.str(), fmt::format("{} block lengths", size_)});
  return Splits{splits.count, std::nullopt};
}

void ShapeEffect::need_equal(std::string what, int64_t expected, Extent found) {
  if (found.is_number() && found.number() != expected)
    out_.violations.push_back(
        ShapeMismatch{std::move(what), std::to_string(expected), std::to_string(found.number())});
}

void ShapeEffect::lengthen(size_t dim, llvm::StringRef key) {
  if (std::optional<Splits> lengths = splits(key))
    dims_[dim] = lengths->sum ? std::optional(Extent(*lengths->sum)) : std::nullopt;
  else if (dims_[dim])
    dims_[dim] = ir::combine(app_.program.exprs, ir::Expr::Form::Multiply, *dims_[dim], size_);
}

void ShapeEffect::divide(size_t dim) {
  std::optional<Extent> &extent = dims_[dim];
  if (!extent || size_ == 1)
    return;
  if (!extent->is_number()) {
    extent = std::nullopt;
  } else if (extent->number() % size_ == 0) {
    extent = Extent(extent->number() / size_);
  } else {
    out_.violations.push_back(Indivisible{static_cast<int64_t>(dim), size_, print(*extent), axes_});
    extent = std::nullopt;
  }
}

void ShapeEffect::shorten(size_t dim, llvm::StringRef key) {
  std::optional<Splits> lengths = splits(key);
  if (!lengths)
    return divide(dim);
  if (lengths->sum && dims_[dim])
    need_equal(fmt::format("dimension {} and the sum of {}", dim, key.str()), *lengths->sum,
               *dims_[dim]);
  // The own block differs from rank to rank.
  dims_[dim] = std::nullopt;
}

void ShapeEffect::unbind(size_t dim) {
  std::string axes = ir::print_axes(app_.program, app_.where().mesh, axes_);
  if (dims_[dim])
    need_equal(fmt::format("dimension {} and the number of ranks of {}", dim, axes), size_,
               *dims_[dim]);
  dims_.erase(dims_.begin() + dim);
}

bool ShapeEffect::join(const AxisEffect &effect) {
  if (stacks(effect)) {
    Dim dim = named("dim", dims_.size() + 1);
    if (dim)
      insert(*dim);
    return dim.has_value();
  }
  Dim dim = shard(effect.src);
  if (dim)
    lengthen(*dim, "splits");
  return dim.has_value();
}

bool ShapeEffect::cut(const AxisEffect &effect) {
  bool unbound = unbinds(effect);
  Dim dim = unbound ? named("dim", dims_.size()) : shard(effect.dst);
  if (dim && unbound)
    unbind(*dim);
  else if (dim)
    shorten(*dim, "splits");
  return dim.has_value();
}

// Blocks whose lengths are stated lie one after another, whatever the ends are called.
bool ShapeEffect::exchange_stated(size_t split, size_t join) {
  shorten(split, "in_splits");
  lengthen(join, "out_splits");
  return true;
}

// Blocks change places; both ends are one dimension unless attributes say otherwise.
bool ShapeEffect::exchange_erased() {
  Dim split = named("split_dim", dims_.size()), join = named("concat_dim", dims_.size());
  if (!split || !join)
    return false;
  bool stays = *split == *join && !states_lengths();
  std::optional<Extent> before = dims_[*split];
  shorten(*split, "in_splits");
  if (stays)
    dims_[*split] = dims_[*split] || (before && !before->is_number()) ? before : std::nullopt;
  else
    lengthen(*join, "out_splits");
  return true;
}

bool ShapeEffect::exchange(const AxisEffect &effect) {
  if (!effect.src_stated || !effect.dst_stated)
    return exchange_erased();
  if (effect.src.form == KindWord::Form::Shard) {
    Dim join = shard(effect.src), split = shard(effect.dst);
    if (!join || !split)
      return false;
    return (*join == *split && !states_lengths()) || exchange_stated(*split, *join);
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

bool ShapeEffect::apply(const AxisEffect &effect, ir::AxisSet axes, int64_t size) {
  if (effect.identity)
    return true;
  if (!effect.row)
    return false;
  axes_ = axes;
  size_ = size;
  switch (reshape_of(*effect.row)) {
  case Reshape::Keep:
    return true;
  case Reshape::Join:
    return join(effect);
  case Reshape::Cut:
    return cut(effect);
  case Reshape::Exchange:
    return exchange(effect);
  }
  return false;
}

void ShapeEffect::compare() {
  bool differs = dims_.size() != declared_->dims.size();
  for (size_t i = 0; i < dims_.size() && !differs; ++i) {
    Extent stated = declared_->dims[i];
    bool numbers = dims_[i] && dims_[i]->is_number() && stated.is_number();
    differs = numbers && *dims_[i] != stated;
  }
  if (!differs)
    return;
  auto text = [&](size_t rank, const auto &extent_of) {
    std::string list;
    for (size_t i = 0; i < rank; ++i)
      list += fmt::format("{}{}", i ? ", " : "", extent_of(i));
    return fmt::format("[{}]", list);
  };
  out_.violations.push_back(ShapeMismatch{
      "the result",
      text(dims_.size(), [&](size_t i) { return dims_[i] ? print(*dims_[i]) : std::string("?"); }),
      text(declared_->dims.size(), [&](size_t i) { return print(declared_->dims[i]); })});
}

ir::ShapeId ShapeEffect::finish() {
  ir::Shape shape;
  shape.dtype = operand_.dtype;
  if (declared_) {
    compare();
    if (shape.dtype == ir::DType::Unknown || app_.attr("out_dtype"))
      shape.dtype = declared_->dtype;
  }
  for (size_t i = 0; i < dims_.size(); ++i) {
    bool told = dims_[i] && dims_[i]->is_number();
    bool stated = is_declared_rank(dims_.size());
    if (!told && !stated && !dims_[i])
      return {};
    shape.dims.push_back(told || !stated ? *dims_[i] : declared_->dims[i]);
  }
  return app_.program.shapes.add(std::move(shape));
}

} // namespace

ir::ShapeId transition_shape(const Application &app, const TransitionCall &call,
                             llvm::ArrayRef<AxisEffect> effects, const Arg &arg,
                             ir::ShapeId declared, Outcome &out) {
  const ir::Shape *operand = app.shape(arg);
  if (!operand || !operand->ranked)
    return {};
  ShapeEffect shape(app, *operand, declared, out);
  bool alike = llvm::all_of(effects, [&](const AxisEffect &each) { return each == effects[0]; });
  if (alike) {
    if (!effects.empty() && !shape.apply(effects[0], call.axes.all(), call.axes.size()))
      return {};
    return shape.finish();
  }
  // The innermost axis joins first, the outermost cuts first.
  llvm::SmallVector<size_t, 2> order;
  for (size_t i = 0; i < effects.size(); ++i)
    order.push_back(i);
  if (effects[0].row && reshape_of(*effects[0].row) == Reshape::Join)
    std::reverse(order.begin(), order.end());
  for (size_t i : order) {
    const WrittenAxis &written = call.axes.written[i];
    ir::AxisSet axes;
    for (ir::AxisId axis : written.axes)
      axes |= axis;
    if (!shape.apply(effects[i], axes, written.size))
      return {};
  }
  return shape.finish();
}

} // namespace spmd::rules
