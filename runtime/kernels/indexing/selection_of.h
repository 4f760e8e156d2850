// What the operands of one call select: positions read from index operands of any element type.
#pragma once

#include "runtime/kernels/indexing/selection.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

// The dimension that the call works on; 0 of a number.
template <class T> unsigned dim_of(const KernelContext &context, View<T> a) {
  auto dims = context.dims(a.rank());
  return dims.empty() ? 0 : dims.front();
}

// The list of indices as the framework has it: `null` leaves a dimension whole, a Boolean tensor of
// k dimensions chooses among k dimensions at once.
template <class T> llvm::Expected<Selection> selection(const Call<T> &call, const Dims &large) {
  const KernelContext &context = call.context;
  unsigned operand = context.operand("i");
  llvm::SmallVector<Index, 4> indices;
  unsigned dim = 0, place = 0;
  bool adjacent = true;
  for (unsigned k = 0; k < context.members(operand); ++k, ++place) {
    View<const T> index = call.operand(operand, k);
    unsigned at = list_position(*context.binding[operand], k);
    bool gap = at > place && !indices.empty();
    dim += at - place, place = at;
    adjacent &= !gap;
    bool mask = index.dtype == ir::DType::Bool || index.dtype == ir::DType::U8;
    unsigned covers = mask ? index.rank() : 1;
    if (dim + covers > large.size())
      return cannot_run(context, "more dimensions are indexed than there are");
    if (!mask) {
      llvm::Expected<Positions> positions_in = positions(context, index, large[dim]);
      if (!positions_in)
        return positions_in.takeError();
      indices.push_back({dim++, std::move(*positions_in), *index.dims});
      continue;
    }
    size_t first = indices.size();
    for (unsigned c = 0; c < covers; ++c)
      indices.push_back({dim++, {}, {}});
    for (Walk walk(*index.dims, {strides_of(*index.dims)}); walk; ++walk)
      for (unsigned c = 0; c < covers && truth(index[walk.offset()]); ++c)
        indices[first + c].positions.push_back(walk.index(c));
    for (unsigned c = 0; c < covers; ++c)
      indices[first + c].dims = {static_cast<int64_t>(indices[first + c].positions.size())};
  }
  std::optional<Selection> out = select_by(large, indices, adjacent);
  if (!out)
    return cannot_run(context, "its indices do not have the same extents");
  return std::move(*out);
}

template <class T> Positions whole_numbers(View<const T> index, llvm::ArrayRef<int64_t> extents) {
  Positions found(static_cast<size_t>(index.size()));
  for (size_t i = 0; i < found.size(); ++i) {
    double at = plain(index.data[i]);
    found[i] = std::abs(at) <= 0x1p53 ? static_cast<int64_t>(at) : -1;
    if constexpr (std::is_same_v<T, Residue>)
      found[i] = position(index.data[i], extents[i % extents.size()]).value_or(0);
  }
  return found;
}

// Extents of the windows of a scatter, per dimension of the large tensor: those of the updates.
template <class T> Dims window_sizes(const Call<T> &call, View<const T> updates) {
  Dims sizes(call.results[0].rank(), 1);
  std::optional<Windows> found = windows_of(call.context, true);
  size_t next = 0;
  for (size_t d = 0; found && d < sizes.size(); ++d)
    if (!llvm::is_contained(found->removed, int64_t(d)) &&
        !llvm::is_contained(found->operand_batch, int64_t(d)) && next < found->window.size())
      sizes[d] = updates.dim(static_cast<unsigned>(found->window[next++]));
  return sizes;
}

// `sizes`: of the windows, per dimension of the large tensor.
template <class T>
llvm::Expected<Positions> windows(const Call<T> &call, const Dims &large, const Dims &small,
                                  llvm::ArrayRef<int64_t> sizes, bool scatters) {
  std::optional<Windows> found = windows_of(call.context, scatters);
  View<const T> index = call.operand("i");
  std::optional<Positions> offsets;
  bool fits = found && llvm::all_of(found->starts, [&](int64_t d) {
                return d >= 0 && d < static_cast<int64_t>(large.size());
              });
  if (fits && index.rank()) {
    Dims room;
    for (int64_t d : found->starts)
      room.push_back(large[static_cast<size_t>(d)] - sizes[static_cast<size_t>(d)] + 1);
    room.push_back(room.empty() ? 1 : room.back());
    if (!found->starts.empty())
      room.pop_back();
    offsets =
        window_positions(*found, large, small, sizes, whole_numbers(index, room), *index.dims);
  }
  if (!offsets)
    return cannot_run(call.context, "its dimension numbers do not fit its operands");
  return std::move(*offsets);
}

} // namespace spmd::runtime
