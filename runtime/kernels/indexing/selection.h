// Which elements of a large tensor those of a small one are taken from, or put into: the common
// part of all ops that index.
#pragma once

#include "runtime/kernels/positions.h"

namespace spmd::runtime {

// Per element of the small tensor, in row-major order, the offset in the large one; -1: nowhere.
using Positions = std::vector<int64_t>;

// Positions among `extent` that a tensor holds. An error if one is none.
template <class T>
llvm::Expected<Positions> positions(const KernelContext &context, View<const T> index,
                                    int64_t extent) {
  Positions found(static_cast<size_t>(index.size()));
  for (size_t i = 0; i < found.size(); ++i) {
    std::optional<int64_t> at = position(index.data[i], extent);
    if (!at)
      return no_position(context, plain(index.data[i]), extent);
    found[i] = *at;
  }
  return found;
}

// Whether every place of the small tensor is one of the large tensor, but for dimension d (none: in
// all of them). Dimensions of one element are broadcast.
bool lies_within(const Dims &small, const Dims &large, std::optional<unsigned> d = std::nullopt);
// The small tensor has the extents `small`, and lies within the large one; its element p lies at p
// in the large one, but at index[p] in dimension d. `index` is broadcast over the small tensor.
Positions along(const Dims &large, const Dims &small, unsigned d, const Positions &index,
                const Dims &index_dims);
// As above with one index for each position along d: the small tensor is the large one, at
// index.size() positions along d.
Positions lines(const Dims &large, unsigned d, const Positions &index);

// A list of indices of the dimensions of one tensor, as in x[i, :, m]: positions, broadcast against
// each other, stand at `dim`; what is not indexed is taken whole.
struct Index {
  unsigned dim = 0;
  Positions positions;
  Dims dims;
};
struct Selection {
  Positions offsets;
  Dims dims; // of the small tensor
};
// `adjacent`: the indexed dimensions follow each other, so that what they select stands in their
// place; else it stands first. None: the indices cannot be broadcast.
std::optional<Selection> select_by(const Dims &large, llvm::ArrayRef<Index> indices, bool adjacent);

// Windows of a tensor at starts given by an index tensor, as in `gather` and `scatter` of XLA.
struct Windows {
  rules::Numbers window;  // of the small tensor: dimensions that run over a window
  rules::Numbers removed; // of the large one: dimensions in which the window has one element
  rules::Numbers operand_batch, index_batch;
  rules::Numbers starts; // of the large one: dimensions that the entries of an index vector place
  enum class Outside : uint8_t { Drop, Clip } outside = Outside::Drop;
};
std::optional<Windows> windows_of(const KernelContext &context, bool scatters);
// `index`: raw numbers, index vectors along the last dimension. `sizes`: of the window, per
// dimension of the large tensor.
std::optional<Positions> window_positions(const Windows &windows, const Dims &large,
                                          const Dims &small, llvm::ArrayRef<int64_t> sizes,
                                          const Positions &index, const Dims &index_dims);

template <class T> void fetch(View<const T> from, const Positions &offsets, View<T> to) {
  for (size_t i = 0; i < offsets.size(); ++i)
    if (offsets[i] >= 0)
      to.data[i] = from.data[offsets[i]];
}

// `from`: per element of the small tensor the offset in the source.
template <class T, class Combine>
void put(const Positions &offsets, const Positions &from, const T *source, View<T> to,
         Combine combine) {
  for (size_t i = 0; i < offsets.size(); ++i)
    if (offsets[i] >= 0)
      to.data[offsets[i]] = combine(to.data[offsets[i]], source[from[i]]);
}

// The offsets of a tensor's elements as it is broadcast over `over`.
Positions broadcast_positions(const Dims &dims, const Dims &over);
// The offsets of a tensor's leading part of extents `over`, dimension by dimension.
Positions corner_positions(const Dims &dims, const Dims &over);

} // namespace spmd::runtime
