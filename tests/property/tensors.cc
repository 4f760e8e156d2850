// Row-major tensors without views: clarity before speed.
#include "tests/property/tensors.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace spmd::property {
namespace {

size_t count_of(const std::vector<int> &shape, size_t first, size_t last) {
  size_t count = 1;
  for (size_t i = first; i < last; ++i)
    count *= static_cast<size_t>(shape[i]);
  return count;
}

template <class Op> Tensor zip(const Tensor &a, const Tensor &b, Op op) {
  Tensor result = a;
  for (size_t i = 0; i < a.data.size(); ++i)
    result.data[i] = op(a.data[i], b.data[i]);
  return result;
}

} // namespace

Tensor zeros(std::vector<int> shape) {
  size_t count = count_of(shape, 0, shape.size());
  return {std::move(shape), std::vector<int64_t>(count, 0)};
}

Tensor random_tensor(const std::vector<int> &shape, std::mt19937 &random) {
  Tensor result = zeros(shape);
  for (int64_t &value : result.data)
    value = static_cast<int64_t>(random() % 19) - 9;
  return result;
}

Tensor add(const Tensor &a, const Tensor &b) { return zip(a, b, std::plus<>()); }

Tensor times(const Tensor &a, int64_t factor) {
  return zip(a, a, [&](int64_t x, int64_t) { return x * factor; });
}

Tensor divided(const Tensor &a, int64_t divisor) {
  return zip(a, a, [&](int64_t x, int64_t) { return x / divisor; });
}

int64_t dot(const Tensor &a, const Tensor &b) {
  return std::inner_product(a.data.begin(), a.data.end(), b.data.begin(), int64_t(0));
}

Tensor sum_of(const Ranks &ranks) {
  Tensor sum = zeros(ranks[0].shape);
  for (const Tensor &each : ranks)
    sum = add(sum, each);
  return sum;
}

Tensor concat(const Ranks &pieces, size_t dim) {
  Tensor result;
  result.shape = pieces[0].shape;
  result.shape[dim] = 0;
  for (const Tensor &piece : pieces)
    result.shape[dim] += piece.shape[dim];
  for (size_t outer = 0; outer < count_of(result.shape, 0, dim); ++outer)
    for (const Tensor &piece : pieces) {
      size_t block = count_of(piece.shape, dim, piece.rank());
      auto first = piece.data.begin() + static_cast<ptrdiff_t>(outer * block);
      result.data.insert(result.data.end(), first, first + static_cast<ptrdiff_t>(block));
    }
  return result;
}

Ranks split(const Tensor &whole, const std::vector<int> &lengths, size_t dim) {
  Ranks pieces;
  size_t row = count_of(whole.shape, dim + 1, whole.rank());
  for (int length : lengths) {
    pieces.push_back({whole.shape, {}});
    pieces.back().shape[dim] = length;
  }
  auto at = whole.data.begin();
  while (at != whole.data.end())
    for (Tensor &piece : pieces) {
      auto end = at + static_cast<ptrdiff_t>(row) * piece.shape[dim];
      piece.data.insert(piece.data.end(), at, end);
      at = end;
    }
  return pieces;
}

Ranks chunk(const Tensor &whole, size_t count, size_t dim) {
  return split(whole, std::vector<int>(count, whole.shape[dim] / static_cast<int>(count)), dim);
}

Tensor with_dim(const Tensor &tensor, size_t dim) {
  Tensor result = tensor;
  result.shape.insert(result.shape.begin() + static_cast<ptrdiff_t>(dim), 1);
  return result;
}

Tensor without_dim(const Tensor &tensor, size_t dim) {
  Tensor result = tensor;
  result.shape.erase(result.shape.begin() + static_cast<ptrdiff_t>(dim));
  return result;
}

Tensor stack(const Ranks &pieces, size_t dim) {
  Ranks wider;
  for (const Tensor &piece : pieces)
    wider.push_back(with_dim(piece, dim));
  return concat(wider, dim);
}

Ranks unbind(const Tensor &whole, size_t dim) {
  Ranks pieces = chunk(whole, static_cast<size_t>(whole.shape[dim]), dim);
  for (Tensor &piece : pieces)
    piece = without_dim(piece, dim);
  return pieces;
}

bool all_equal(const Ranks &ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [&](const Tensor &t) { return t == ranks[0]; });
}

bool upholds(ir::Kind kind, const Ranks &ranks) {
  return ir::info(kind).denotes != ir::Denotation::Same || all_equal(ranks);
}

Ranks random_ranks(ir::Kind kind, size_t ranks, const std::vector<int> &shape,
                   std::mt19937 &random) {
  Ranks result(ranks, random_tensor(shape, random));
  if (ir::info(kind).denotes != ir::Denotation::Same)
    for (Tensor &each : result)
      each = random_tensor(shape, random);
  return result;
}

int64_t pairing(ir::Kind kind, const Ranks &x, const Ranks &g) {
  switch (kind) {
  case ir::Kind::Replicate:
  case ir::Kind::Reduced:
    return dot(sum_of(g), x[0]);
  case ir::Kind::Invariant:
    return dot(g[0], x[0]);
  case ir::Kind::Partial:
    return dot(g[0], sum_of(x));
  case ir::Kind::Varying:
    break;
  }
  int64_t sum = 0;
  for (size_t r = 0; r < x.size(); ++r)
    sum += dot(g[r], x[r]);
  return sum;
}

} // namespace spmd::property
