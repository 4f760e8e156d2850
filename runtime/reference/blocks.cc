// Copies go by contiguous runs of the innermost dimension.
#include "runtime/reference/blocks.h"

#include "ir/support/check.h"

#include <algorithm>
#include <cmath>

namespace spmd::runtime {
namespace {

// Row-major steps, in elements.
Dims strides_of(llvm::ArrayRef<int64_t> extents) {
  Dims strides(extents.size(), 1);
  for (size_t i = extents.size(); i-- > 1;)
    strides[i - 1] = strides[i] * extents[i];
  return strides;
}

int64_t offset_of(llvm::ArrayRef<int64_t> place, llvm::ArrayRef<int64_t> strides) {
  int64_t offset = 0;
  for (size_t i = 0; i < place.size(); ++i)
    offset += place[i] * strides[i];
  return offset;
}

int64_t bits_joined(int64_t a, int64_t b, ir::Combiner combiner) {
  return combiner == ir::Combiner::And ? a & b : combiner == ir::Combiner::Or ? a | b : a ^ b;
}

double joined(double a, double b, ir::Combiner combiner) {
  switch (combiner) {
  case ir::Combiner::Sum:
  case ir::Combiner::Avg:
    return a + b;
  case ir::Combiner::Max: // NaN stays
    return std::isnan(b) || b > a ? b : a;
  case ir::Combiner::Min:
    return std::isnan(b) || b < a ? b : a;
  case ir::Combiner::Prod:
    return a * b;
  default:
    return static_cast<double>(
        bits_joined(static_cast<int64_t>(a), static_cast<int64_t>(b), combiner));
  }
}

Complex joined(Complex a, Complex b, ir::Combiner combiner) {
  return combiner == ir::Combiner::Prod ? a * b : a + b;
}

Residue joined(Residue a, Residue b, ir::Combiner combiner) {
  switch (combiner) {
  case ir::Combiner::Sum:
  case ir::Combiner::Avg:
    return a + b;
  case ir::Combiner::Max:
    return b.number() > a.number() ? b : a;
  case ir::Combiner::Min:
    return b.number() < a.number() ? b : a;
  case ir::Combiner::Prod:
    return a * b;
  default:
    return Residue(bits_joined(a.number(), b.number(), combiner));
  }
}

template <class T> T scaled(T value, int64_t numerator, int64_t denominator) {
  if constexpr (std::is_same_v<T, Residue>)
    return value * Residue(numerator) * Residue(denominator).inverse();
  else
    return value * static_cast<double>(numerator) / static_cast<double>(denominator);
}

} // namespace

void for_each_position(llvm::ArrayRef<int64_t> extents,
                       llvm::function_ref<void(llvm::ArrayRef<int64_t>)> f) {
  if (count(extents) == 0)
    return;
  Dims place(extents.size(), 0);
  for (;;) {
    f(place);
    size_t i = extents.size();
    while (i > 0 && ++place[i - 1] == extents[i - 1])
      place[--i] = 0;
    if (i == 0)
      return;
  }
}

void copy_block(const Tensor &from, llvm::ArrayRef<int64_t> from_first, Tensor &to,
                llvm::ArrayRef<int64_t> to_first, llvm::ArrayRef<int64_t> extents) {
  SPMD_CHECK(from.cells.index() == to.cells.index(), "blocks of one form of cells");
  SPMD_CHECK(from.dims.size() == extents.size() && to.dims.size() == extents.size(),
             "a block of the rank of its tensors");
  Dims from_strides = strides_of(from.dims), to_strides = strides_of(to.dims);
  for (size_t i = 0; i < extents.size(); ++i)
    SPMD_CHECK(from_first[i] + extents[i] <= from.dims[i] && to_first[i] + extents[i] <= to.dims[i],
               "a block inside of its tensors");
  int64_t run = extents.empty() ? 1 : extents.back();
  from.visit([&](const auto &source) {
    using T = typename std::decay_t<decltype(source)>::value_type;
    std::vector<T> &target = to.of<T>();
    int64_t from_base = offset_of(from_first, from_strides);
    int64_t to_base = offset_of(to_first, to_strides);
    llvm::ArrayRef<int64_t> outer = extents.drop_back(extents.empty() ? 0 : 1);
    for_each_position(outer, [&](llvm::ArrayRef<int64_t> place) {
      auto first = source.begin() + from_base + offset_of(place, from_strides);
      std::copy(first, first + run, target.begin() + to_base + offset_of(place, to_strides));
    });
  });
}

Tensor zeros_like(const Tensor &like, Dims dims) {
  Tensor made{like.dtype, std::move(dims), {}};
  auto size = static_cast<size_t>(made.size());
  like.visit([&](const auto &cells) { made.cells = std::decay_t<decltype(cells)>(size); });
  return made;
}

Tensor block_of(const Tensor &from, llvm::ArrayRef<int64_t> first, Dims extents) {
  Tensor made = zeros_like(from, extents);
  copy_block(from, first, made, Dims(extents.size(), 0), extents);
  return made;
}

Tensor slice_of(const Tensor &from, unsigned dim, int64_t first, int64_t extent) {
  Dims begin(from.dims.size(), 0), extents = from.dims;
  begin[dim] = first;
  extents[dim] = extent;
  return block_of(from, begin, extents);
}

Tensor concatenated(llvm::ArrayRef<Tensor> parts, unsigned dim) {
  Dims dims = parts.front().dims;
  dims[dim] = 0;
  for (const Tensor &part : parts)
    dims[dim] += part.dims[dim];
  Tensor made = zeros_like(parts.front(), dims);
  Dims at(dims.size(), 0);
  for (const Tensor &part : parts) {
    copy_block(part, Dims(dims.size(), 0), made, at, part.dims);
    at[dim] += part.dims[dim];
  }
  return made;
}

Tensor stacked(llvm::ArrayRef<Tensor> parts, unsigned dim) {
  std::vector<Tensor> layers(parts.begin(), parts.end());
  for (Tensor &layer : layers)
    layer.dims.insert(layer.dims.begin() + dim, 1);
  return concatenated(layers, dim);
}

Tensor taken(const Tensor &from, unsigned dim, int64_t at) {
  Tensor layer = slice_of(from, dim, at, 1);
  layer.dims.erase(layer.dims.begin() + dim);
  return layer;
}

void combine_into(Tensor &to, const Tensor &more, ir::Combiner combiner) {
  SPMD_CHECK(to.cells.index() == more.cells.index() && to.dims == more.dims,
             "joined tensors have one shape");
  to.visit([&](auto &cells) {
    using T = typename std::decay_t<decltype(cells)>::value_type;
    const std::vector<T> &others = more.of<T>();
    for (size_t i = 0; i < cells.size(); ++i)
      cells[i] = joined(cells[i], others[i], combiner);
  });
}

void multiply(Tensor &tensor, int64_t numerator, int64_t denominator) {
  if (numerator == denominator)
    return;
  tensor.visit([&](auto &cells) {
    for (auto &cell : cells)
      cell = scaled(cell, numerator, denominator);
  });
}

std::optional<llvm::SmallVector<int64_t, 8>> whole_numbers(const Tensor &tensor) {
  llvm::SmallVector<int64_t, 8> numbers;
  bool whole = true;
  tensor.visit([&](const auto &cells) {
    using T = typename std::decay_t<decltype(cells)>::value_type;
    for (const T &cell : cells) {
      if constexpr (std::is_same_v<T, Residue>)
        numbers.push_back(cell.number());
      else if constexpr (std::is_same_v<T, double>) {
        whole = whole && std::trunc(cell) == cell && std::abs(cell) < 0x1p62;
        numbers.push_back(whole ? static_cast<int64_t>(cell) : 0);
      } else
        whole = false;
    }
  });
  return whole ? std::optional(numbers) : std::nullopt;
}

Tensor magnitudes(const Tensor &tensor) {
  SPMD_CHECK(!tensor.is_modular(), "residues have no magnitude");
  Tensor made{tensor.dtype, tensor.dims, std::vector<double>(static_cast<size_t>(tensor.size()))};
  std::vector<double> &out = made.of<double>();
  tensor.visit([&](const auto &cells) {
    using T = typename std::decay_t<decltype(cells)>::value_type;
    if constexpr (!std::is_same_v<T, Residue>)
      for (size_t i = 0; i < cells.size(); ++i)
        out[i] = std::abs(cells[i]);
  });
  return made;
}

} // namespace spmd::runtime
