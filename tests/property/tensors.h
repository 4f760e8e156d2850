// Exact tensors of small integers, one per rank: what the property tests execute claims on.
#pragma once

#include "ir/kind.h"

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace spmd::property {

struct Tensor {
  std::vector<int> shape;
  std::vector<int64_t> data; // row major
  friend bool operator==(const Tensor &, const Tensor &) = default;

  size_t rank() const { return shape.size(); }
};

// What the ranks of one axis hold, in order.
using Ranks = std::vector<Tensor>;

Tensor zeros(std::vector<int> shape);
Tensor random_tensor(const std::vector<int> &shape, std::mt19937 &random);
Tensor add(const Tensor &a, const Tensor &b);
Tensor times(const Tensor &a, int64_t factor);
Tensor divided(const Tensor &a, int64_t divisor); // exact, or the data were chosen badly
int64_t dot(const Tensor &a, const Tensor &b);
Tensor sum_of(const Ranks &ranks);

// As the functions of the same names in numpy and torch.
Tensor concat(const Ranks &pieces, size_t dim);
Tensor stack(const Ranks &pieces, size_t dim);
Ranks chunk(const Tensor &whole, size_t count, size_t dim);
Ranks split(const Tensor &whole, const std::vector<int> &lengths, size_t dim);
Ranks unbind(const Tensor &whole, size_t dim);
Tensor without_dim(const Tensor &tensor, size_t dim); // of extent 1
Tensor with_dim(const Tensor &tensor, size_t dim);

// Random data that uphold a claim of this kind.
Ranks random_ranks(ir::Kind kind, size_t ranks, const std::vector<int> &shape,
                   std::mt19937 &random);
bool all_equal(const Ranks &ranks);
// True if the data uphold what a kind says about them alone.
bool upholds(ir::Kind kind, const Ranks &ranks);
// <x, g> for a value x of this kind and its gradient g, of the dual kind (rules/README.md).
int64_t pairing(ir::Kind kind, const Ranks &x, const Ranks &g);

} // namespace spmd::property
