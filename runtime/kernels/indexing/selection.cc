// Positions that indices select.
#include "runtime/kernels/indexing/selection.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>

namespace spmd::runtime {

namespace {

Positions positions_of(const Dims &over, const Strides &strides) {
  Positions offsets;
  offsets.reserve(static_cast<size_t>(count(over)));
  for (Walk walk(over, {strides}); walk; ++walk)
    offsets.push_back(walk.offset());
  return offsets;
}

std::optional<Dims> broadcast(llvm::ArrayRef<Index> indices) {
  Dims dims;
  for (const Index &index : indices) {
    if (index.dims.size() > dims.size())
      dims.insert(dims.begin(), index.dims.size() - dims.size(), 1);
    for (size_t back = 1; back <= index.dims.size(); ++back) {
      int64_t extent = index.dims[index.dims.size() - back], &have = dims[dims.size() - back];
      if (have != 1 && extent != 1 && have != extent)
        return std::nullopt;
      have = have == 1 ? extent : have;
    }
  }
  return dims;
}

} // namespace

Positions broadcast_positions(const Dims &dims, const Dims &over) {
  return positions_of(over, strides_over(dims, over));
}

Positions corner_positions(const Dims &dims, const Dims &over) {
  return positions_of(over, strides_of(dims));
}

bool lies_within(const Dims &small, const Dims &large, std::optional<unsigned> d) {
  if (small.size() != large.size())
    return false;
  for (unsigned i = 0; i < small.size(); ++i)
    if (i != d && small[i] > large[i] && large[i] != 1)
      return false;
  return true;
}

Positions along(const Dims &large, const Dims &small, unsigned d, const Positions &index,
                const Dims &index_dims) {
  Strides strides = strides_of(large);
  int64_t step = strides[d];
  strides[d] = 0;
  for (size_t i = 0; i < small.size(); ++i)
    strides[i] = large[i] == 1 ? 0 : strides[i];
  Positions offsets;
  offsets.reserve(static_cast<size_t>(count(small)));
  for (Walk walk(small, {strides, strides_over(index_dims, small)}); walk; ++walk)
    offsets.push_back(walk.offset(0) + index[static_cast<size_t>(walk.offset(1))] * step);
  return offsets;
}

Positions lines(const Dims &large, unsigned d, const Positions &index) {
  DimSplit cut(large, d);
  Positions offsets;
  offsets.reserve(static_cast<size_t>(cut.outer * cut.inner) * index.size());
  for (int64_t o = 0; o < cut.outer; ++o)
    for (int64_t x : index)
      for (int64_t i = 0; i < cut.inner; ++i)
        offsets.push_back(cut.at(o, x, i));
  return offsets;
}

std::optional<Selection> select_by(const Dims &large, llvm::ArrayRef<Index> indices,
                                   bool adjacent) {
  std::optional<Dims> chosen = broadcast(indices);
  if (!chosen)
    return std::nullopt;
  Strides own = strides_of(large), strides;
  Dims dims;
  unsigned first = indices.empty() ? 0 : indices.front().dim;
  auto take_chosen = [&] {
    dims.append(chosen->begin(), chosen->end());
    strides.append(chosen->size(), 0);
  };
  if (!adjacent)
    take_chosen();
  for (unsigned d = 0; d < large.size(); ++d) {
    if (adjacent && d == first)
      take_chosen();
    if (llvm::any_of(indices, [&](const Index &index) { return index.dim == d; }))
      continue;
    dims.push_back(large[d]);
    strides.push_back(own[d]);
  }
  Positions offset(static_cast<size_t>(count(*chosen)), 0);
  for (const Index &index : indices) {
    Positions spread = broadcast_positions(index.dims, *chosen);
    for (size_t i = 0; i < offset.size(); ++i)
      offset[i] += index.positions[static_cast<size_t>(spread[i])] * own[index.dim];
  }
  // Where the dimensions of the selection stand in the small tensor.
  Strides selected(dims.size(), 0), step = strides_of(*chosen);
  std::copy(step.begin(), step.end(), selected.begin() + (adjacent ? first : 0));
  Selection out{{}, dims};
  out.offsets.reserve(static_cast<size_t>(count(dims)));
  for (Walk walk(dims, {strides, selected}); walk; ++walk)
    out.offsets.push_back(walk.offset(0) + offset[static_cast<size_t>(walk.offset(1))]);
  return out;
}

std::optional<Windows> windows_of(const KernelContext &context, bool scatters) {
  const ir::AttrValue *numbers = rules::any_attr(context.app, {"dimension_numbers"});
  if (!numbers)
    return std::nullopt;
  bool complete = true;
  auto part = [&](llvm::StringRef key, unsigned place) {
    std::optional<ir::AttrValue> value = rules::attr_part(context.app, *numbers, key, place);
    std::optional<rules::Numbers> found =
        value ? rules::numbers_of(context.app, *value) : std::nullopt;
    complete &= found.has_value() || place > 2;
    return found.value_or(rules::Numbers());
  };
  Windows windows;
  windows.window = part(scatters ? "update_window_dims" : "offset_dims", 0);
  windows.removed = part(scatters ? "inserted_window_dims" : "collapsed_slice_dims", 1);
  windows.starts = part(scatters ? "scatter_dims_to_operand_dims" : "start_index_map", 2);
  windows.operand_batch = part("operand_batching_dims", 3);
  windows.index_batch =
      part(scatters ? "scatter_indices_batching_dims" : "start_indices_batching_dims", 4);
  if (!complete || windows.operand_batch.size() != windows.index_batch.size())
    return std::nullopt;
  llvm::StringRef mode = rules::word_attr(context.app, {"mode"});
  std::optional<int64_t> number = rules::number_attr(context.app, {"mode"});
  if (mode.contains_insensitive("clip") || number == 0)
    windows.outside = Windows::Outside::Clip;
  return windows;
}

std::optional<Positions> window_positions(const Windows &windows, const Dims &large,
                                          const Dims &small, llvm::ArrayRef<int64_t> sizes,
                                          const Positions &index, const Dims &index_dims) {
  if (index_dims.empty() || sizes.size() != large.size())
    return std::nullopt;
  llvm::ArrayRef<int64_t> entries = llvm::ArrayRef<int64_t>(index_dims).drop_back();
  auto width = static_cast<size_t>(index_dims.back());
  Strides own = strides_of(large), entry = strides_of(entries);
  // The dimensions of the large tensor that a window runs over, in order.
  rules::Numbers kept;
  for (size_t d = 0; d < large.size(); ++d)
    if (!llvm::is_contained(windows.removed, int64_t(d)) &&
        !llvm::is_contained(windows.operand_batch, int64_t(d)))
      kept.push_back(static_cast<int64_t>(d));
  if (kept.size() != windows.window.size() || width != windows.starts.size() ||
      small.size() != kept.size() + entries.size())
    return std::nullopt;
  Positions offsets;
  offsets.reserve(static_cast<size_t>(count(small)));
  for (Walk walk(small); walk; ++walk) {
    Dims at(large.size(), 0), inside(large.size(), 0);
    size_t row = 0, next = 0;
    rules::Numbers where; // among the entries
    for (unsigned d = 0; d < small.size(); ++d)
      if (!llvm::is_contained(windows.window, int64_t(d))) {
        row += static_cast<size_t>(walk.index(d) * entry[next++]);
        where.push_back(walk.index(d));
      }
    for (size_t k = 0; k < width; ++k) {
      auto d = static_cast<size_t>(windows.starts[k]);
      int64_t start = index[row * width + k], last = large[d] - sizes[d];
      at[d] = windows.outside == Windows::Outside::Clip
                  ? std::clamp<int64_t>(start, 0, std::max<int64_t>(last, 0))
                  : start;
      inside[d] = windows.outside == Windows::Outside::Clip || (start >= 0 && start <= last);
    }
    for (auto [d, i] : llvm::zip(windows.operand_batch, windows.index_batch))
      at[static_cast<size_t>(d)] = where[static_cast<size_t>(i)];
    for (size_t k = 0; k < kept.size(); ++k)
      at[static_cast<size_t>(kept[k])] += walk.index(static_cast<unsigned>(windows.window[k]));
    bool dropped = false;
    for (int64_t d : windows.starts)
      dropped |= !inside[static_cast<size_t>(d)];
    offsets.push_back(dropped ? -1
                              : std::inner_product(at.begin(), at.end(), own.begin(), int64_t(0)));
  }
  return offsets;
}

} // namespace spmd::runtime
