// Maps of ops whose parameters are those of jaxprs: dimensions by number in structured attributes,
// starts and sizes per dimension. Where a dimension is taken in full it passes; a cut one is whole.
#include "rules/factors/factors.h"
#include "rules/shapes/attrs.h"
#include "rules/shapes/checked.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules {

using ir::AttrValue;
using ir::Extent;

namespace {

using Positions = llvm::SmallVector<unsigned, 4>;

std::optional<Positions> positions_of(std::optional<Numbers> numbers, size_t rank) {
  if (!numbers)
    return std::nullopt;
  Positions positions;
  for (int64_t number : *numbers) {
    std::optional<unsigned> place = place_of(number, rank);
    if (!place || llvm::is_contained(positions, *place))
      return std::nullopt;
    positions.push_back(*place);
  }
  return positions;
}

// One entry of `dimension_numbers`; an entry that is left out is empty.
std::optional<Numbers> dimension_numbers(const Application &app, llvm::StringRef key,
                                         unsigned place) {
  const AttrValue *all = any_attr(app, {"dimension_numbers"});
  std::optional<AttrValue> part = all ? attr_part(app, *all, key, place) : std::nullopt;
  return part ? numbers_of(app, *part) : all ? std::optional(Numbers()) : std::nullopt;
}

// A number per dimension, all of them `absent` where the attribute is not there or null.
std::optional<Numbers> per_dim(const Application &app, llvm::StringRef name, size_t rank,
                               int64_t absent) {
  if (!any_attr(app, {name}))
    return Numbers(rank, absent);
  std::optional<Numbers> numbers = numbers_attr(app, {name});
  return numbers && numbers->size() == rank ? numbers : std::nullopt;
}

// Padding as [before, after] or [before, after, between] per dimension.
std::optional<llvm::SmallVector<Numbers, 4>>
padding_of(const Application &app, llvm::StringRef name, size_t rank, size_t width) {
  const AttrValue *stated = any_attr(app, {name});
  llvm::SmallVector<Numbers, 4> padding;
  if (!stated) {
    padding.assign(rank, Numbers(width, 0));
    return padding;
  }
  for (unsigned d = 0; d < rank; ++d) {
    std::optional<AttrValue> part = attr_part(app, *stated, "", d);
    std::optional<Numbers> numbers = part ? numbers_of(app, *part) : std::nullopt;
    if (!numbers || numbers->size() != width)
      return std::nullopt;
    padding.push_back(std::move(*numbers));
  }
  return padding;
}

// Takes `extent` of a dimension: all of it passes, a part has a factor of its own.
DimFactors taken(FactorSink &sink, const DimFactors &from, Extent have,
                 std::optional<Extent> extent) {
  if (extent == have)
    return from;
  sink.whole(from);
  return {sink.factor(extent, true)};
}

// The dimensions of a tensor but those at some positions.
TensorFactors without(const TensorFactors &factors, llvm::ArrayRef<unsigned> positions) {
  TensorFactors left;
  for (unsigned d = 0; d < factors.size(); ++d)
    if (!llvm::is_contained(positions, d))
      left.push_back(factors[d]);
  return left;
}

} // namespace

bool broadcast_in_dim_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *from = sink.shape(0);
  std::optional<WantedExtents> shape = extents_attr(app, {"shape"});
  std::optional<Positions> positions =
      shape ? positions_of(numbers_attr(app, {"broadcast_dimensions"}), shape->size())
            : std::nullopt;
  if (!from || !positions || positions->size() != from->dims.size())
    return false;
  TensorFactors operand = sink.fresh(0), result;
  for (const WantedExtent &wanted : *shape)
    result.push_back({sink.factor(wanted.extent)});
  for (unsigned d = 0; d < positions->size(); ++d)
    if ((*shape)[(*positions)[d]].extent == from->dims[d])
      result[(*positions)[d]] = operand[d];
    else
      operand[d].clear();
  sink.set(0, std::move(operand));
  sink.result(std::move(result));
  return true;
}

bool expand_dims_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  std::optional<Numbers> dims = dim_numbers(app);
  std::optional<Positions> positions =
      shape && dims ? positions_of(dims, shape->dims.size() + dims->size()) : std::nullopt;
  if (!positions)
    return false;
  llvm::sort(*positions);
  TensorFactors result = sink.fresh(0);
  for (unsigned place : *positions)
    result.insert(result.begin() + place, DimFactors());
  sink.result(std::move(result));
  return true;
}

// The result has the batch dimensions, then what is left of each operand.
bool dot_general_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *a = sink.shape(0, 0), *b = sink.shape(0, 1);
  const AttrValue *all = any_attr(app, {"dimension_numbers"});
  if (!a || !b || !all || sink.count(0) != 2)
    return false;
  const TensorFactors x = sink.fresh(0, 0);
  TensorFactors y = sink.fresh(0, 1), result;
  Positions gone_x, gone_y;
  static constexpr llvm::StringLiteral kParts[] = {"contracting", "batch"};
  for (unsigned part = 0; part < 2; ++part) {
    std::optional<AttrValue> pair = attr_part(app, *all, kParts[part], part);
    std::optional<AttrValue> of_x = pair ? attr_part(app, *pair, "lhs", 0) : std::nullopt;
    std::optional<AttrValue> of_y = pair ? attr_part(app, *pair, "rhs", 1) : std::nullopt;
    std::optional<Positions> left =
        of_x ? positions_of(numbers_of(app, *of_x), x.size()) : std::nullopt;
    std::optional<Positions> right =
        of_y ? positions_of(numbers_of(app, *of_y), y.size()) : std::nullopt;
    if (!left || !right || left->size() != right->size())
      return false;
    for (auto [i, j] : llvm::zip(*left, *right)) {
      if (!sink.unify(x[i][0], b->dims[j], 0, 1, j))
        return false;
      y[j] = x[i];
      gone_x.push_back(i), gone_y.push_back(j);
      if (part == 1)
        result.push_back(x[i]);
    }
  }
  result.append(without(x, gone_x));
  result.append(without(y, gone_y));
  sink.set(0, 1, std::move(y));
  sink.result(std::move(result));
  return true;
}

bool lax_slice_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  size_t rank = shape ? shape->dims.size() : 0;
  std::optional<WantedExtents> limits = extents_attr(app, {"limit_indices"});
  std::optional<Numbers> starts = numbers_attr(app, {"start_indices"}),
                         strides = per_dim(app, "strides", rank, 1);
  if (!shape || !starts || !limits || !strides || starts->size() != rank || limits->size() != rank)
    return false;
  const TensorFactors from = sink.fresh(0);
  TensorFactors result;
  for (size_t d = 0; d < rank; ++d) {
    std::optional<Extent> limit = (*limits)[d].extent, extent;
    int64_t start = (*starts)[d], stride = (*strides)[d];
    if (limit == shape->dims[d] && start == 0 && stride == 1)
      extent = limit;
    else if (limit && limit->is_number() && stride > 0 && limit->number() >= start)
      extent = (CheckedInt(limit->number()) - start + stride - 1).over(stride).extent();
    // A number beside a symbol may be all of it, but nothing says so.
    result.push_back(taken(sink, from[d], shape->dims[d], extent));
  }
  sink.result(std::move(result));
  return true;
}

bool dynamic_slice_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  std::optional<WantedExtents> sizes = extents_attr(app, {"slice_sizes"});
  if (!shape || !sizes || sizes->size() != shape->dims.size())
    return false;
  const TensorFactors from = sink.fresh(0);
  TensorFactors result;
  for (size_t d = 0; d < from.size(); ++d)
    result.push_back(taken(sink, from[d], shape->dims[d], (*sizes)[d].extent));
  sink.result(std::move(result));
  return true;
}

// The dimensions of the update that are as long as those of the target are theirs.
bool dynamic_update_slice_factors(const Application &, FactorSink &sink) {
  const ir::Shape *target = sink.shape(0), *update = sink.shape(1);
  if (!target || !update || target->dims.size() != update->dims.size())
    return false;
  const TensorFactors result = sink.fresh(0);
  TensorFactors part;
  for (size_t d = 0; d < result.size(); ++d)
    part.push_back(taken(sink, result[d], target->dims[d], update->dims[d]));
  sink.set(1, std::move(part));
  sink.result(result);
  return true;
}

bool lax_pad_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  if (!shape || !any_attr(app, {"padding_config"}))
    return false;
  std::optional<llvm::SmallVector<Numbers, 4>> padding =
      padding_of(app, "padding_config", shape->dims.size(), 3);
  if (!padding)
    return false;
  TensorFactors result = sink.fresh(0);
  for (size_t d = 0; d < result.size(); ++d) {
    const Numbers &pad = (*padding)[d];
    Extent have = shape->dims[d];
    if (llvm::all_of(pad, [](int64_t number) { return number == 0; }))
      continue;
    std::optional<Extent> extent;
    if (have.is_number()) {
      CheckedInt between = CheckedInt(pad[2]) * std::max<int64_t>(0, have.number() - 1);
      extent = (between + have.number() + pad[0] + pad[1]).extent_or_empty();
    }
    sink.whole(result[d]);
    result[d] = {sink.factor(extent, true)};
  }
  sink.result(std::move(result));
  return true;
}

namespace {

// How a gather or a scatter ties the dimensions of windows and of indices to those of its operand.
struct Windows {
  Numbers window, removed, operand_batch, index_batch; // as in `dimension_numbers`

  static std::optional<Windows> read(const Application &app, bool scatters) {
    std::optional<Numbers> window =
        dimension_numbers(app, scatters ? "update_window_dims" : "offset_dims", 0);
    std::optional<Numbers> removed =
        dimension_numbers(app, scatters ? "inserted_window_dims" : "collapsed_slice_dims", 1);
    std::optional<Numbers> operand_batch = dimension_numbers(app, "operand_batching_dims", 3);
    std::optional<Numbers> index_batch = dimension_numbers(
        app, scatters ? "scatter_indices_batching_dims" : "start_indices_batching_dims", 4);
    if (!window || !removed || !operand_batch || !index_batch ||
        operand_batch->size() != index_batch->size())
      return std::nullopt;
    return Windows{*window, *removed, *operand_batch, *index_batch};
  }

  // The dimensions of a window of operand 0 at the positions that it has in the result of a gather
  // or the updates of a scatter, between those of the indices. `extent(d, k)`: of the window in
  // dimension d of the operand, its k-th. None if the numbers do not fit.
  template <class ExtentOf>
  std::optional<TensorFactors> combine(FactorSink &sink, const TensorFactors &from,
                                       unsigned indices, ExtentOf extent) const {
    const ir::Shape *shape = sink.shape(0), *index = sink.shape(indices);
    size_t batch = index->dims.size() ? index->dims.size() - 1 : 0;
    TensorFactors positions = sink.fresh(indices), parts;
    for (auto [d, i] : llvm::zip(operand_batch, index_batch)) {
      if (d < 0 || size_t(d) >= from.size() || i < 0 || size_t(i) >= batch)
        return std::nullopt;
      positions[size_t(i)] = from[size_t(d)];
    }
    if (!positions.empty())
      sink.whole(positions.back());
    for (size_t d = 0; d < from.size(); ++d) {
      if (llvm::is_contained(operand_batch, int64_t(d)))
        continue;
      if (llvm::is_contained(removed, int64_t(d)))
        sink.whole(from[d]);
      else
        parts.push_back(taken(sink, from[d], shape->dims[d], extent(d, parts.size())));
    }
    sink.set(indices, positions);
    size_t rank = batch + parts.size(), next_part = 0, next_position = 0;
    if (parts.size() != window.size())
      return std::nullopt;
    TensorFactors all;
    for (size_t d = 0; d < rank; ++d)
      if (llvm::is_contained(window, int64_t(d)))
        all.push_back(parts[next_part++]);
      else if (next_position < batch)
        all.push_back(positions[next_position++]);
    return all.size() == rank ? std::optional(all) : std::nullopt;
  }
};

} // namespace

bool lax_gather_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  std::optional<WantedExtents> sizes = extents_attr(app, {"slice_sizes"});
  std::optional<Windows> windows = Windows::read(app, false);
  if (!shape || !sink.shape(1) || !windows || !sizes || sizes->size() != shape->dims.size())
    return false;
  std::optional<TensorFactors> result = windows->combine(
      sink, sink.fresh(0), 1, [&](size_t d, size_t) { return (*sizes)[d].extent; });
  if (result)
    sink.result(std::move(*result));
  return result.has_value();
}

// `adds`: the updates are summed, so that they may be sharded.
static bool scatter(const Application &app, FactorSink &sink, bool adds) {
  unsigned indices = sink.operand("i"), updates = sink.operand("s");
  const ir::Shape *shape = sink.shape(0), *update = sink.shape(updates);
  std::optional<Windows> windows = Windows::read(app, true);
  if (!shape || !update || !sink.shape(indices) || !windows)
    return false;
  for (int64_t place : windows->window)
    if (place < 0 || size_t(place) >= update->dims.size())
      return false;
  const TensorFactors from = sink.fresh(0);
  std::optional<TensorFactors> part =
      windows->combine(sink, from, indices, [&](size_t, size_t k) -> std::optional<Extent> {
        if (k >= windows->window.size())
          return std::nullopt;
        return update->dims[size_t(windows->window[k])];
      });
  if (!part || part->size() != update->dims.size())
    return false;
  for (unsigned d = 0; !adds && d < part->size(); ++d)
    if (!llvm::is_contained(windows->window, int64_t(d)))
      sink.whole((*part)[d]);
  sink.set(updates, std::move(*part));
  sink.result(from);
  return true;
}

bool lax_scatter_factors(const Application &app, FactorSink &sink) {
  return scatter(app, sink, false);
}
bool lax_scatter_add_factors(const Application &app, FactorSink &sink) {
  return scatter(app, sink, true);
}

namespace {

// One dimension of a window op.
struct WindowDim {
  int64_t size, stride, dilation, base_dilation, before, after;

  std::optional<Extent> extent(Extent have) const {
    if (!have.is_number() || stride < 1)
      return std::nullopt;
    auto dilated = [](int64_t extent, int64_t by) {
      return extent ? (CheckedInt(extent) - 1) * by + 1 : CheckedInt(0);
    };
    CheckedInt room =
        dilated(have.number(), base_dilation) + before + after - dilated(size, dilation);
    bool none = room.number() && *room.number() < 0;
    return none ? std::optional(Extent(0)) : (room.over(stride) + 1).extent();
  }
  bool is_trivial() const {
    return size == 1 && stride == 1 && base_dilation == 1 && !before && !after;
  }
};

} // namespace

bool reduce_window_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  size_t rank = shape ? shape->dims.size() : 0;
  std::optional<Numbers> sizes = numbers_attr(app, {"window_dimensions"}),
                         strides = per_dim(app, "window_strides", rank, 1),
                         dilation = per_dim(app, "window_dilation", rank, 1),
                         base = per_dim(app, "base_dilation", rank, 1);
  std::optional<llvm::SmallVector<Numbers, 4>> padding = padding_of(app, "padding", rank, 2);
  if (!shape || !sizes || sizes->size() != rank || !strides || !dilation || !base || !padding)
    return false;
  TensorFactors result = sink.fresh(0);
  for (size_t d = 0; d < rank; ++d) {
    WindowDim window{(*sizes)[d], (*strides)[d],    (*dilation)[d],
                     (*base)[d],  (*padding)[d][0], (*padding)[d][1]};
    if (window.is_trivial())
      continue;
    sink.whole(result[d]);
    result[d] = {sink.factor(window.extent(shape->dims[d]), true)};
  }
  for (unsigned k = 0; k < sink.result_count(); ++k)
    sink.result(result);
  return true;
}

// `dimension_numbers` are the positions of batch or output channels, then channels, then the
// spatial dimensions, in the image, the kernel and the result.
bool conv_general_dilated_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *x = sink.shape(0), *w = sink.shape(1);
  size_t rank = x ? x->dims.size() : 0, count = rank < 2 ? 0 : rank - 2;
  std::optional<Positions> image = positions_of(dimension_numbers(app, "lhs_spec", 0), rank),
                           kernel = positions_of(dimension_numbers(app, "rhs_spec", 1), rank),
                           out = positions_of(dimension_numbers(app, "out_spec", 2), rank);
  std::optional<Numbers> strides = per_dim(app, "window_strides", count, 1),
                         dilation = per_dim(app, "rhs_dilation", count, 1),
                         base = per_dim(app, "lhs_dilation", count, 1);
  std::optional<llvm::SmallVector<Numbers, 4>> padding = padding_of(app, "padding", count, 2);
  bool grouped = number_attr(app, {"feature_group_count"}).value_or(1) != 1 ||
                 number_attr(app, {"batch_group_count"}).value_or(1) != 1;
  if (!x || !w || rank < 2 || w->dims.size() != rank || grouped || !strides || !dilation || !base ||
      !padding || !image || !kernel || !out || image->size() != rank || kernel->size() != rank ||
      out->size() != rank)
    return false;
  const TensorFactors from = sink.fresh(0);
  TensorFactors weight = sink.fresh(1), result(rank);
  uint8_t channels = from[(*image)[1]][0];
  if (!sink.unify(channels, w->dims[(*kernel)[1]], 1, 0, (*kernel)[1]))
    return false;
  weight[(*kernel)[1]] = {channels};
  result[(*out)[0]] = from[(*image)[0]];
  result[(*out)[1]] = weight[(*kernel)[0]];
  for (size_t i = 0; i < count; ++i) {
    unsigned at = (*image)[i + 2], of_kernel = (*kernel)[i + 2];
    Extent reach = w->dims[of_kernel];
    WindowDim window{reach.is_number() ? reach.number() : 0,
                     (*strides)[i],
                     (*dilation)[i],
                     (*base)[i],
                     (*padding)[i][0],
                     (*padding)[i][1]};
    sink.whole(from[at]);
    sink.whole(weight[of_kernel]);
    result[(*out)[i + 2]] = {
        sink.factor(reach.is_number() ? window.extent(x->dims[at]) : std::nullopt, true)};
  }
  sink.set(1, std::move(weight));
  sink.result(std::move(result));
  return true;
}

// The last dimensions, as many as there are `fft_lengths`, are transformed.
bool lax_fft_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  std::optional<WantedExtents> lengths = extents_attr(app, {"fft_lengths"});
  if (!shape || !lengths || lengths->size() > shape->dims.size())
    return false;
  TensorFactors result = sink.fresh(0);
  for (size_t d = result.size() - lengths->size(); d < result.size(); ++d) {
    sink.whole(result[d]);
    result[d] = {sink.factor(std::nullopt, true)};
  }
  sink.result(std::move(result));
  return true;
}

// The operands are reduced together, each with a number to start from.
bool lax_reduce_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  std::optional<Positions> positions =
      shape ? positions_of(dim_numbers(app), shape->dims.size()) : std::nullopt;
  if (!positions)
    return false;
  const TensorFactors from = sink.fresh(0, 0);
  for (unsigned i = 1; i < sink.count(0); ++i)
    if (const ir::Shape *other = sink.shape(0, i); other && !other->dims.empty()) {
      if (other->dims.size() != from.size())
        return false;
      for (unsigned d = 0; d < from.size(); ++d)
        if (!sink.unify(from[d][0], other->dims[d], 0, i, d))
          return false;
      sink.set(0, i, from);
    }
  for (unsigned place : *positions)
    sink.whole(from[place]);
  for (unsigned k = 0; k < sink.result_count(); ++k)
    sink.result(without(from, *positions));
  return true;
}

// Tensors sorted together: all of one shape, each with a result.
bool sort_together_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  int64_t dim = dim_number(app).value_or(-1);
  std::optional<unsigned> place = shape ? place_of(dim, shape->dims.size()) : std::nullopt;
  if (!place)
    return false;
  const TensorFactors from = sink.fresh(0, 0);
  sink.whole(from[*place]);
  for (unsigned i = 1; i < sink.count(0); ++i) {
    const ir::Shape *other = sink.shape(0, i);
    if (!other || other->dims.size() != from.size())
      return false;
    for (unsigned d = 0; d < from.size(); ++d)
      if (!sink.unify(from[d][0], other->dims[d], 0, i, d))
        return false;
    sink.set(0, i, from);
  }
  for (unsigned k = 0; k < sink.result_count(); ++k)
    sink.result(from);
  return true;
}

// Equations on the left are as written; `x a = b` has other dimensions.
bool triangular_solve_factors(const Application &app, FactorSink &) {
  bool from_right = (any_attr(app, {"left_side"}) && !flag_attr(app, "left_side")) ||
                    (any_attr(app, {"left"}) && !flag_attr(app, "left"));
  return !from_right;
}

} // namespace spmd::rules
