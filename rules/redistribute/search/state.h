// Redistribution as a search problem, in numbers alone: axes and dimensions are small integers, a
// state is a partition spec with the sets of partial and of invariant axes, a move leads from state
// to state. Nothing of a program is known here (plan.h: types in, transition rows out).
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <algorithm>
#include <array>
#include <bit>
#include <compare>
#include <cstdint>

namespace spmd::rules::redistribute {

inline constexpr unsigned kMostAxes = 16, kMostDims = 15;
inline constexpr unsigned kNoDim = 0xF;

// Numbers of ranks beyond this count as this.
inline constexpr int64_t kMany = int64_t(1) << 40;
inline int64_t times_ranks(int64_t ranks, int64_t size) {
  int64_t product = 0;
  return __builtin_mul_overflow(ranks, size, &product) ? kMany : std::min(product, kMany);
}

// A set of axes of the problem; its members in mesh order.
using Axes = uint16_t;
inline constexpr bool has(Axes set, unsigned axis) { return set >> axis & 1; }
inline constexpr Axes one(unsigned axis) { return static_cast<Axes>(1u << axis); }
inline constexpr Axes without(Axes set, Axes other) { return static_cast<Axes>(set & ~other); }
inline constexpr unsigned first(Axes set) { return static_cast<unsigned>(std::countr_zero(set)); }

// An axis that shards no dimension and is not partial is replicated: R, or I where `invariant`.
struct State {
  uint64_t dims = ~uint64_t(0); // nibble per axis: the dimension that it shards
  uint64_t order = 0;           // nibble per axis: place among those of its dimension
  Axes partial = 0, invariant = 0;
  Axes sharding = 0; // all that shard some dimension

  unsigned dim(unsigned axis) const { return dims >> 4 * axis & 0xF; }
  unsigned place(unsigned axis) const { return order >> 4 * axis & 0xF; }
  bool sharded(unsigned axis) const { return has(sharding, axis); }
  void shard(unsigned axis, unsigned dim, unsigned place) {
    free(axis);
    dims = (dims & ~(uint64_t(0xF) << 4 * axis)) | uint64_t(dim) << 4 * axis;
    order |= uint64_t(place) << 4 * axis;
    sharding |= one(axis);
    partial = without(partial, one(axis));
    invariant = without(invariant, one(axis));
  }
  void free(unsigned axis) {
    dims |= uint64_t(0xF) << 4 * axis;
    order &= ~(uint64_t(0xF) << 4 * axis);
    sharding = without(sharding, one(axis));
  }
  friend bool operator==(const State &, const State &) = default;
};

// The same spec as lists, outermost axis first.
struct Spec {
  std::array<uint8_t, kMostDims> count{};
  std::array<std::array<uint8_t, kMostAxes>, kMostDims> axes;

  Spec(const State &state, unsigned axes, unsigned rank);
  llvm::ArrayRef<uint8_t> of(unsigned dim) const { return {axes[dim].data(), count[dim]}; }
};

// What a step costs: `launch` once per collective, `alpha` per hop and `beta` per byte, those of a
// tuple being of its slowest axis. Any unit (bytes, or femtoseconds).
struct Prices {
  uint64_t launch = 0;
  llvm::SmallVector<uint64_t, 6> alpha, beta; // by axis; none: 0 and 1
  friend bool operator==(const Prices &, const Prices &) = default;
};

struct Problem {
  llvm::SmallVector<int64_t, 6> sizes;   // of the axes, in mesh order
  llvm::SmallVector<int64_t, 4> extents; // of the whole tensor
  int64_t element_bytes = 1;
  State source, target;
  llvm::SmallVector<uint8_t, 6> combiners; // by axis; partial axes of one step agree
  Axes may_keep = 0, may_zero_fill = 0;    // that `keep` and `zeros` may make partial
  Axes owned = 0;                          // that no reorder may make replicated
  bool has_invariant = false;              // I is not taken for R
  bool gradient = false;                   // backward prices count
  bool even = true;                        // all blocks of a dimension are equal
  uint64_t cap = ~uint64_t(0);             // of bytes on one rank
  Prices prices;

  unsigned rank() const { return static_cast<unsigned>(extents.size()); }
  unsigned axis_count() const { return static_cast<unsigned>(sizes.size()); }
  Axes all() const { return static_cast<Axes>((1u << axis_count()) - 1); }
  Axes replicated(const State &state) const {
    return without(all(), state.sharding | state.partial);
  }
  // Product of the sizes, at most kMany.
  int64_t ranks_of(Axes axes) const {
    return axes < products.size() ? products[axes] : product_of(axes);
  }
  // Makes the products of all sets ready, if the axes are few.
  void prepare();
  int64_t product_of(Axes axes) const;

  llvm::SmallVector<int64_t, 0> products; // by set
  llvm::SmallVector<int64_t, 0>
      blocks; // elements of one rank, by the set that shards; of even ones
};

// The first block of one dimension, which is the longest: a block is ceil(len / n) of what the
// outer axes left.
int64_t block_of(const Problem &problem, const State &state, unsigned dim);
int64_t elements_of(const Problem &problem, const State &state);
inline uint64_t bytes_of(const Problem &problem, const State &state) {
  return static_cast<uint64_t>(elements_of(problem, state) * problem.element_bytes);
}
// In the order in which steps are compared.
enum class Form : uint8_t {
  Slice,
  Gather,
  AllToAll,
  Reorder,
  Reduce,
  Scatter,
  Keep,
  Zeros,
  Convert
};
// A step is determined by its form and its ends: no two moves of one form join the same states.
struct Move {
  Form form;
  State after;
};

// Every legal move from a state, in a fixed order. False if only some are given: of reorders and
// scatters there are as many as orders of axes. `reorders`: whether these are wanted.
bool moves_from(const Problem &problem, const State &state, llvm::SmallVectorImpl<Move> &moves,
                bool reorders = true);
// To one value, then from it: some way from the source to the target, whatever it costs and holds.
llvm::SmallVector<Move, 4> fallback_moves(const Problem &problem);

// The axes that a move is about, outermost first, with the dimension that each leaves or enters
// (kNoDim: none). Of a reorder: those that may change ranks, in the order of the target.
struct Moved {
  uint8_t axis, from, to;
  friend auto operator<=>(const Moved &, const Moved &) = default;
};
using MovedAxes = llvm::SmallVector<Moved, 6>;
MovedAxes moved_axes(const Problem &problem, const State &before, const Move &move);
// The order between moves from one state: by form, then by what is moved.
bool comes_before(const Problem &problem, const State &before, const Move &a, const Move &b);

uint64_t hash_of(const State &state);

} // namespace spmd::rules::redistribute
