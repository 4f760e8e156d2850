// The type of a tensor: kinds per axis, partition spec, scale. One 32-byte value, interned.
// A set of axes per kind makes typing set algebra over all axes at once.
#pragma once

#include "ir/ids.h"
#include "ir/kind.h"
#include "ir/mesh/axis.h"
#include "ir/support/store.h"

#include <array>
#include <optional>

namespace spmd::ir {

struct Type {
  static constexpr uint16_t kGradientFree = 0x8000;
  static constexpr uint64_t kUnsharded = ~uint64_t(0);

  // axes[k]: the axes on which the tensor may be of kind k. One kind is the rule. In R and I:
  // undecided or either (`R|I`). In R, I and P: a zero, which is of every kind. In none and not in
  // unknown: no claim.
  std::array<AxisSet, kKindCount> axes{};
  AxisSet unknown;                 // stated `?`, or already reported: whatever follows is silent
  ScaleId scale{0};                // 1 unless stated
  uint16_t mesh_bits = 0;          // the mesh; the top bit says gradient-free
  uint64_t shard_dim = kUnsharded; // nibble per axis: the dimension that it shards, 0xF for none
  uint64_t shard_order = 0; // nibble per axis: place among the axes of its dimension, outermost 0;
                            // on an axis of kind P the combiner

  AxisSet &of(Kind kind) { return axes[static_cast<unsigned>(kind)]; }
  AxisSet of(Kind kind) const { return axes[static_cast<unsigned>(kind)]; }
  // R or Reduced.
  AxisSet replicated() const { return of(Kind::Replicate) | of(Kind::Reduced); }
  // All ranks hold the same.
  AxisSet same_on_all_ranks() const { return replicated() | of(Kind::Invariant); }
  AxisSet either() const { return replicated() & of(Kind::Invariant); }
  AxisSet zero() const { return either() & of(Kind::Partial); }
  AxisSet claimed() const;

  MeshId mesh() const { return MeshId{static_cast<uint16_t>(mesh_bits & ~kGradientFree)}; }
  void set_mesh(MeshId mesh) {
    mesh_bits = static_cast<uint16_t>((mesh_bits & kGradientFree) | mesh.index);
  }
  bool gradient_free() const { return mesh_bits & kGradientFree; }
  void set_gradient_free(bool value) {
    mesh_bits =
        static_cast<uint16_t>(value ? mesh_bits | kGradientFree : mesh_bits & ~kGradientFree);
  }

  // The one kind on an axis; none where undecided, unknown or unclaimed.
  std::optional<Kind> kind(AxisId axis) const;
  // Replaces whatever was claimed on the axis, shard and combiner included.
  void set_kind(AxisId axis, Kind kind);
  void set_kind(AxisSet axes, Kind kind);
  void set_either(AxisSet axes);
  void set_zero(AxisSet axes);
  void set_unknown(AxisSet axes);
  void clear(AxisSet axes);

  std::optional<unsigned> dim(AxisId axis) const;
  unsigned order(AxisId axis) const { return nibble(shard_order, axis); }
  void set_shard(AxisId axis, unsigned dim, unsigned order);
  Combiner combiner(AxisId axis) const { return static_cast<Combiner>(nibble(shard_order, axis)); }
  void set_combiner(AxisId axis, Combiner combiner);
  AxisSet sharded() const;
  // Axes of kind P whose combiner is not a sum.
  AxisSet combining() const;

  // The same claims with the partition spec forgotten (local judgment), on all axes or on some.
  Type without_shards() const;
  Type without_shards(AxisSet axes) const;
  // Forgets which dimension the axes shard; they stay V.
  void drop_shards(AxisSet axes);
  // Numbers the axes of each dimension without gaps, in the order that they have.
  void renumber_shard_orders();
  // The type of the gradient; Reduced and R give P, P gives R (rules/README.md).
  Type dual() const;

  friend bool operator==(const Type &, const Type &) = default;

private:
  static unsigned nibble(uint64_t word, AxisId axis) { return (word >> (axis.index * 4)) & 0xF; }
  static void set_nibble(uint64_t &word, AxisId axis, unsigned value) {
    word = (word & ~(uint64_t(0xF) << (axis.index * 4))) | (uint64_t(value) << (axis.index * 4));
  }
};
static_assert(sizeof(Type) == 32);

inline uint64_t hash_of(const Type &type) { return hash_bytes(&type, sizeof type); }

} // namespace spmd::ir
