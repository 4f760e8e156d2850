// Maps of views: which factors of the old dimensions make up the new ones. A reshape is the common
// refinement of both sides, row-major, so that a shard of a leading part can be followed through
// it.
#include "rules/factors/factors.h"
#include "rules/shapes/attrs.h"
#include "rules/shapes/blocks.h"
#include "rules/shapes/checked.h"
#include "rules/shapes/extent_facts.h"

#include "ir/claims.h"
#include "ir/support/arrays.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules {

using ir::Extent;

namespace {

// True if the declared type of the first result says that an axis shards the dimension.
bool claims_cut(const Application &app, unsigned dim) {
  ir::TypeId declared = app.results.empty() ? ir::TypeId() : app.results[0].declared;
  return declared.valid() && !ir::shards_of(app.program.types[declared], dim).empty();
}

// True if axes cut a dimension of the first operand into different numbers of blocks of so many
// elements.
bool in_blocks_of(const Application &app, size_t dim, Extent elements) {
  ir::ShardSizesId sizes = app.args[0].sizes;
  const ir::UnevenDim *uneven =
      sizes.valid() ? app.program.shard_sizes[sizes].find(static_cast<unsigned>(dim)) : nullptr;
  return uneven && divided(app.program, Blocks(*uneven), elements);
}

// Refines old and new extents into common factors. Dimensions of one element are left out, but for
// those that are sharded: on all ranks together they are longer. A longer dimension that is cut
// gives its shard to a new one of one element only where that is to be inferred, or cut by its
// declared type.
class Refinement {
public:
  // `has_shape_operand`: operand 1 has the new extents.
  Refinement(const Application &app, FactorSink &sink, const ir::Shape &from,
             const WantedExtents &to, bool has_shape_operand)
      : app_(app), sink_(sink) {
    for (unsigned d = 0; d < from.dims.size(); ++d) {
      old_.push_back(from.dims[d]);
      cut_.push_back(sink.cut(0, 0, d));
    }
    for (unsigned d = 0; d < to.size(); ++d) {
      new_.push_back(to[d].extent);
      takes_cut_.push_back(to[d].inferred || claims_cut(app, d) ||
                           (has_shape_operand && sink.cut(1, 0, d)));
      open_ &= !takes_cut_.back();
    }
    from_.resize(old_.size());
    to_.resize(new_.size());
  }

  // Both sides have the same number of elements, as far as they are known.
  void run() {
    size_t i = 0, j = 0;
    while (i < old_.size() || j < new_.size()) {
      bool one = i < old_.size() && old_[i] == Extent(1), new_one = is_one(j);
      if (one && !cut_[i]) {
        j += new_one;
        ++i;
      } else if (i < old_.size() && cut_[i] && (one || (new_one && takes_cut_[j]))) {
        lead(i, j, new_one);
      } else if (new_one) {
        ambiguous_ |= open_ && i < old_.size() && cut_[i] && in_blocks_of(app_, i, *old_[i]);
        ++j;
      } else if (i == old_.size() || j == new_.size() || !step(i, j)) {
        finish(i, j);
        return;
      }
    }
  }
  TensorFactors from() { return std::move(from_); }
  TensorFactors to() { return std::move(to_); }
  // True if uneven blocks may lie on either of two new dimensions, and nothing says on which.
  bool ambiguous() const { return ambiguous_; }

private:
  // A new dimension of one element that nothing has been put into.
  bool is_one(size_t j) const { return j < new_.size() && new_[j] == Extent(1) && !left_new_; }

  // The shard of old dimension i leads the new dimension at hand; a single element does, where
  // there is one.
  void lead(size_t &i, size_t &j, bool new_one) {
    if (new_.empty()) {
      from_[i] = {sink_.factor(old_[i], true)};
      ++i;
      return;
    }
    share(Extent(1), i, std::min(j, new_.size() - 1));
    j += new_one;
    if (old_[i] == Extent(1))
      ++i;
    else
      cut_[i] = false;
  }
  void share(std::optional<Extent> extent, size_t i, size_t j) {
    uint8_t factor = sink_.factor(extent);
    from_[i].push_back(factor);
    to_[j].push_back(factor);
  }
  // Takes the leading common part of old dimension i and new dimension j.
  bool step(size_t &i, size_t &j) {
    std::optional<Extent> a = left_old_ ? Extent(left_old_) : old_[i];
    std::optional<Extent> b = left_new_ ? std::optional(Extent(left_new_)) : new_[j];
    if (!b)
      return false;
    if (*a == *b) {
      share(a, i++, j++);
      left_old_ = left_new_ = 0;
      return true;
    }
    if (!a->is_number() || !b->is_number())
      return false;
    int64_t x = a->number(), y = b->number();
    if (x == 0 || y == 0) // whose number of elements was beyond counting
      return false;
    if (x > y && x % y == 0) {
      share(b, i, j++);
      left_old_ = x / y, left_new_ = 0;
      return true;
    }
    if (x < y && y % x == 0) {
      share(a, i++, j);
      left_new_ = y / x, left_old_ = 0;
      return true;
    }
    return false;
  }

  // What has no common part from here on: equal dimensions at the end still correspond.
  void finish(size_t i, size_t j) {
    size_t old_end = old_.size(), new_end = new_.size();
    size_t first_old = i + (left_old_ != 0), first_new = j + (left_new_ != 0);
    while (old_end > first_old && new_end > first_new && old_[old_end - 1] == new_[new_end - 1]) {
      --old_end, --new_end;
      share(old_[old_end], old_end, new_end);
    }
    if (left_old_ || left_new_)
      return opaque(i, old_end, j, new_end);
    if (new_end == j + 1)
      return merge(from_, old_, i, old_end, to_[j], cut_);
    if (old_end == i + 1)
      return merge(to_, new_, j, new_end, from_[i], {});
    opaque(i, old_end, j, new_end);
  }
  template <class Extents>
  void merge(TensorFactors &parts, const Extents &extents, size_t first, size_t last,
             DimFactors &whole, llvm::ArrayRef<bool> cut) {
    for (size_t d = first; d < last; ++d) {
      if (extents[d] == Extent(1) && (d >= cut.size() || !cut[d]))
        continue;
      uint8_t factor = sink_.factor(extents[d]);
      parts[d].push_back(factor);
      whole.push_back(factor);
    }
  }
  // What cannot be distinguished must be whole, what these dimensions already share included.
  void opaque(size_t i, size_t old_end, size_t j, size_t new_end) {
    for (; i < old_end; ++i) {
      sink_.whole(from_[i]);
      from_[i] = {sink_.factor(old_[i], true)};
    }
    for (; j < new_end; ++j) {
      sink_.whole(to_[j]);
      to_[j] = {sink_.factor(new_[j], true)};
    }
  }

  const Application &app_;
  FactorSink &sink_;
  llvm::SmallVector<std::optional<Extent>, 5> old_, new_;
  llvm::SmallVector<bool, 5> cut_;       // old dimensions whose shard has no place yet
  llvm::SmallVector<bool, 5> takes_cut_; // new dimensions that may take the shard of a longer one
  TensorFactors from_, to_;
  bool open_ = true; // nothing says where a shard goes
  bool ambiguous_ = false;
  int64_t left_old_ = 0, left_new_ = 0; // what is left of the dimensions at hand; 0: all of them
};

std::string print(const Application &app, Extent extent) {
  return ir::print(extent, app.program.exprs, app.program.strings);
}

// What two sides multiply, without the symbols that both have.
struct Sides {
  std::optional<Extent> before, after; // none: it is not known or cannot be written
  bool symbols = false;

  Sides(const Application &app, const ir::Shape &from, const WantedExtents &to) {
    llvm::SmallVector<Extent, 5> left(from.dims.begin(), from.dims.end()), right;
    bool known = true;
    for (const WantedExtent &each : to)
      if (each.extent)
        right.push_back(*each.extent);
      else
        known &= each.inferred;
    auto symbolic = [](Extent extent) { return !extent.is_number(); };
    symbols = llvm::any_of(left, symbolic) || llvm::any_of(right, symbolic);
    llvm::erase_if(right, [&](Extent extent) {
      auto *same = symbolic(extent) ? llvm::find(left, extent) : left.end();
      bool both = same != left.end();
      if (both)
        left.erase(same);
      return both;
    });
    if (symbols && known)
      before = product_of(app, left), after = product_of(app, right);
  }

private:
  static std::optional<Extent> product_of(const Application &app, llvm::ArrayRef<Extent> extents) {
    std::optional<Extent> all(Extent(1));
    for (Extent extent : extents)
      all = all ? times(app.program, *all, extent) : std::nullopt;
    return all;
  }
};

// False, and reported, if symbols leave no way for both sides to have the same number of elements.
bool count_fits(const Application &app, FactorSink &sink, const Sides &sides) {
  constexpr const char *kWhat = "the number of elements of the operand and of the result";
  if (!sides.before || !sides.after || sink.may_be_equal(*sides.before, *sides.after, kWhat))
    return true;
  return sink.mismatch(kWhat, print(app, *sides.before), print(app, *sides.after),
                       app.type(app.args[0]).sharded() & app.global_axes());
}

// The extent that is left open, where symbols are among the others.
bool infer_symbolic(const Application &app, FactorSink &sink, const Sides &sides,
                    WantedExtent &open) {
  if (!sides.before || !sides.after || *sides.after == Extent(0))
    return true;
  constexpr const char *kWhat =
      "the number of elements of the operand and a multiple of what is stated";
  if (!sink.may_divide(*sides.before, *sides.after, kWhat))
    return sink.mismatch(kWhat, print(app, *sides.before), print(app, *sides.after),
                         app.type(app.args[0]).sharded() & app.global_axes());
  open.extent = quotient(app.program, *sides.before, *sides.after);
  return true;
}

// Extents of the new side that are not stated follow from the number of elements. False: it cannot
// be.
bool infer(const Application &app, FactorSink &sink, const ir::Shape &from, WantedExtents &to) {
  WantedExtent *open = nullptr;
  for (WantedExtent &wanted : to) {
    if (wanted.extent)
      continue;
    if (!wanted.inferred || open)
      return true;
    open = &wanted;
  }
  if (Sides sides(app, from, to); sides.symbols)
    return open ? infer_symbolic(app, sink, sides, *open) : count_fits(app, sink, sides);
  CheckedInt old_count = 1, new_count = 1;
  for (Extent extent : from.dims)
    old_count = old_count * extent.number();
  for (const WantedExtent &wanted : to)
    if (wanted.extent)
      new_count = new_count * wanted.extent->number();
  if (!old_count.number() || !new_count.number())
    return true;
  int64_t before = *old_count.number(), after = *new_count.number();
  bool divides = after && before % after == 0;
  if (open ? !divides : before != after)
    return sink.mismatch("the number of elements of the operand and of the result",
                         std::to_string(before), std::to_string(after),
                         app.type(app.args[0]).sharded() & app.global_axes());
  if (open)
    open->extent = Extent(before / after);
  return true;
}

bool is_empty(const ir::Shape &shape) { return llvm::is_contained(shape.dims, Extent(0)); }

bool reshape(const Application &app, FactorSink &sink, WantedExtents to,
             bool has_shape_operand = false) {
  const ir::Shape *from = sink.shape(0);
  if (!from || is_empty(*from) || !infer(app, sink, *from, to))
    return false;
  Refinement refinement(app, sink, *from, to, has_shape_operand);
  refinement.run();
  if (refinement.ambiguous())
    return sink.mismatch(
        "the dimension that uneven blocks lie on and the one that `shape` leaves open "
        "(-1), or that the declared type cuts,",
        "a dimension of operand 0", "none");
  sink.set(0, refinement.from());
  TensorFactors result = refinement.to();
  if (has_shape_operand)
    sink.set(1, result);
  sink.result(std::move(result));
  return true;
}

WantedExtents extents_of(const ir::Shape &shape) {
  WantedExtents extents;
  for (Extent extent : shape.dims)
    extents.push_back({extent});
  return extents;
}

bool permute(FactorSink &sink, llvm::ArrayRef<unsigned> order) {
  const TensorFactors from = sink.fresh(0);
  TensorFactors to;
  for (unsigned place : order)
    to.push_back(from[place]);
  sink.result(std::move(to));
  return true;
}

llvm::SmallVector<unsigned, 5> identity_order(size_t rank) {
  llvm::SmallVector<unsigned, 5> order;
  for (unsigned i = 0; i < rank; ++i)
    order.push_back(i);
  return order;
}

bool swap(FactorSink &sink, int64_t a, int64_t b) {
  size_t rank = sink.shape(0)->dims.size();
  std::optional<unsigned> x = place_of(a, rank), y = place_of(b, rank);
  if (!x || !y)
    return false;
  llvm::SmallVector<unsigned, 5> order = identity_order(rank);
  std::swap(order[*x], order[*y]);
  return permute(sink, order);
}

// One dimension of an expansion.
DimFactors expanded(FactorSink &sink, const DimFactors &from, Extent have, const WantedExtent &want,
                    TensorFactors &operand, size_t place) {
  if (!want.extent || *want.extent == have)
    return from;
  if (have == Extent(1))
    operand[place].clear();
  return {sink.factor(want.extent)};
}

} // namespace

bool reshape_factors(const Application &app, FactorSink &sink) {
  std::optional<WantedExtents> shape =
      extents_attr(app, {"shape", "size", "sizes", "new_sizes", "newshape"});
  bool transposes = any_attr(app, {"dimensions"}); // of an order other than row-major
  if (!shape && !app.results.empty() && app.results[0].shape.valid() &&
      app.program.shapes[app.results[0].shape].ranked)
    shape = extents_of(app.program.shapes[app.results[0].shape]);
  return shape && !transposes && reshape(app, sink, std::move(*shape));
}

bool view_as_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *other = sink.shape(1);
  return other && reshape(app, sink, extents_of(*other), true);
}

bool flatten_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  if (!shape)
    return false;
  size_t rank = shape->dims.size();
  if (rank == 0) {
    sink.result({{sink.factor(Extent(1))}});
    return true;
  }
  std::optional<unsigned> first = place_of(number_attr(app, {"start_dim"}).value_or(0), rank);
  std::optional<unsigned> last = place_of(number_attr(app, {"end_dim"}).value_or(-1), rank);
  if (!first || !last || *first > *last)
    return false;
  TensorFactors result;
  const TensorFactors from = sink.fresh(0);
  for (unsigned d = 0; d < rank; ++d)
    if (d > *first && d <= *last)
      result.back().append(from[d]);
    else
      result.push_back(from[d]);
  sink.result(std::move(result));
  return true;
}

bool unflatten_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  std::optional<WantedExtents> sizes = extents_attr(app, {"sizes", "unflattened_size", "shape"});
  std::optional<int64_t> dim = number_attr(app, {"dim"});
  std::optional<unsigned> place = shape && dim ? place_of(*dim, shape->dims.size()) : std::nullopt;
  if (!place || !sizes)
    return false;
  WantedExtents to = extents_of(*shape);
  to.erase(to.begin() + *place);
  to.insert(to.begin() + *place, sizes->begin(), sizes->end());
  return reshape(app, sink, std::move(to));
}

bool squeeze_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  if (!shape)
    return false;
  std::optional<Numbers> dims = dim_numbers(app);
  if (!dims && dim_attr(app))
    return false;
  const TensorFactors from = sink.fresh(0);
  TensorFactors result;
  for (unsigned d = 0; d < from.size(); ++d) {
    bool named =
        !dims || llvm::any_of(*dims, [&](int64_t dim) { return place_of(dim, from.size()) == d; });
    if (named && shape->dims[d] == Extent(1))
      sink.whole(from[d]); // one element on each rank is not one element
    else
      result.push_back(from[d]);
  }
  sink.result(std::move(result));
  return true;
}

bool unsqueeze_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  std::optional<int64_t> dim = number_attr(app, {"dim"});
  std::optional<unsigned> place =
      shape && dim ? place_of(*dim, shape->dims.size() + 1) : std::nullopt;
  if (!place)
    return false;
  TensorFactors result = sink.fresh(0);
  result.insert(result.begin() + *place, DimFactors());
  sink.result(std::move(result));
  return true;
}

bool permute_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  std::optional<Numbers> dims = numbers_attr(app, {"dims", "dim", "permutation"});
  if (!shape || !dims || dims->size() != shape->dims.size())
    return false;
  llvm::SmallVector<unsigned, 5> order;
  for (int64_t dim : *dims) {
    std::optional<unsigned> place = place_of(dim, shape->dims.size());
    if (!place || llvm::is_contained(order, *place))
      return false;
    order.push_back(*place);
  }
  return permute(sink, order);
}

bool transpose_factors(const Application &app, FactorSink &sink) {
  if (any_attr(app, {"permutation", "dims"}))
    return permute_factors(app, sink);
  std::optional<int64_t> a = number_attr(app, {"dim0", "axis0"}),
                         b = number_attr(app, {"dim1", "axis1"});
  return a && b && sink.shape(0) && swap(sink, *a, *b);
}

bool reverse_factors(const Application &, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  if (!shape)
    return false;
  llvm::SmallVector<unsigned, 5> order = identity_order(shape->dims.size());
  std::reverse(order.begin(), order.end());
  return permute(sink, order);
}

bool swap_last_factors(const Application &, FactorSink &sink) {
  return sink.shape(0) && swap(sink, -2, -1);
}

bool movedim_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  std::optional<Numbers> from = numbers_attr(app, {"source"}),
                         to = numbers_attr(app, {"destination"});
  if (!shape || !from || !to || from->size() != to->size())
    return false;
  size_t rank = shape->dims.size();
  llvm::SmallVector<std::optional<unsigned>, 5> order(rank);
  llvm::SmallVector<unsigned, 5> others = identity_order(rank);
  for (auto [source, destination] : llvm::zip(*from, *to)) {
    std::optional<unsigned> x = place_of(source, rank), y = place_of(destination, rank);
    if (!x || !y || order[*y])
      return false;
    order[*y] = *x;
    ir::erase_value(others, *x);
  }
  llvm::SmallVector<unsigned, 5> full;
  size_t next = 0;
  for (std::optional<unsigned> place : order)
    full.push_back(place ? *place : others[next++]);
  return permute(sink, full);
}

bool expand_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  std::optional<WantedExtents> size = extents_attr(app, {"size", "shape", "sizes"});
  if (!shape || !size || size->size() < shape->dims.size())
    return false;
  size_t added = size->size() - shape->dims.size();
  TensorFactors operand = sink.fresh(0), result;
  for (size_t d = 0; d < size->size(); ++d) {
    const WantedExtent &want = (*size)[d];
    if (d < added) {
      result.push_back({sink.factor(want.extent)});
      continue;
    }
    Extent have = shape->dims[d - added];
    std::string what = "dimension " + std::to_string(d - added) + " of operand 0 and `size`";
    if (want.extent && have != Extent(1) && !sink.may_be_equal(have, *want.extent, what) &&
        compare(app.program, have, Extent(1)) == Equality::Different)
      return sink.mismatch(what, print(app, have), print(app, *want.extent));
    DimFactors from = operand[d - added];
    result.push_back(expanded(sink, from, have, want, operand, d - added));
  }
  sink.set(0, std::move(operand));
  sink.result(std::move(result));
  return true;
}

bool expand_as_factors(const Application &, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0), *shape_only = sink.shape(1);
  if (!shape || !shape_only || shape_only->dims.size() < shape->dims.size())
    return false;
  TensorFactors result = sink.fresh(1), operand;
  size_t added = shape_only->dims.size() - shape->dims.size();
  for (size_t d = 0; d < shape->dims.size(); ++d)
    operand.push_back(shape->dims[d] == Extent(1) ? DimFactors() : result[d + added]);
  sink.set(0, std::move(operand));
  sink.result(std::move(result));
  return true;
}

bool repeat_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  std::optional<Numbers> counts = numbers_attr(app, {"repeats", "dims", "reps", "sizes"});
  if (!shape || !counts)
    return false;
  while (counts->size() < shape->dims.size())
    counts->insert(counts->begin(), 1);
  size_t added = counts->size() - shape->dims.size();
  const TensorFactors from = sink.fresh(0);
  TensorFactors result;
  for (size_t d = 0; d < counts->size(); ++d) {
    DimFactors dim;
    if ((*counts)[d] != 1)
      dim.push_back(sink.factor(CheckedInt((*counts)[d]).extent(), true));
    if (d >= added) {
      if ((*counts)[d] != 1)
        sink.whole(from[d - added]);
      dim.append(from[d - added]);
    }
    result.push_back(std::move(dim));
  }
  sink.result(std::move(result));
  return true;
}

} // namespace spmd::rules
