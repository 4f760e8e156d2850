// Reading and changing the claims of one type, axis by axis.
#include "ir/type.h"

namespace spmd::ir {

namespace {

constexpr uint64_t kLowest = 0x1111'1111'1111'1111; // of each nibble

// A set of axes as the nibbles of a word, and the set of those that are not 0.
constexpr uint64_t nibbles_of(AxisSet axes) {
  uint64_t word = axes.bits();
  word = (word | word << 24) & 0x0000'00FF'0000'00FF;
  word = (word | word << 12) & 0x000F'000F'000F'000F;
  word = (word | word << 6) & 0x0303'0303'0303'0303;
  return ((word | word << 3) & kLowest) * 0xF;
}
constexpr AxisSet axes_in(uint64_t word) {
  word |= word >> 1;
  word = (word | word >> 2) & kLowest;
  word = (word | word >> 3) & 0x0303'0303'0303'0303;
  word = (word | word >> 6) & 0x000F'000F'000F'000F;
  word = (word | word >> 12) & 0x0000'00FF'0000'00FF;
  return AxisSet(static_cast<uint16_t>(word | word >> 24));
}
static_assert(axes_in(nibbles_of(AxisSet(0xA5C3))) == AxisSet(0xA5C3));

} // namespace

AxisSet Type::claimed() const {
  AxisSet all = unknown;
  for (AxisSet set : axes)
    all |= set;
  return all;
}

std::optional<Kind> Type::kind(AxisId axis) const {
  std::optional<Kind> found;
  for (const KindInfo &row : kKinds) {
    if (!of(row.kind).contains(axis))
      continue;
    if (found)
      return std::nullopt;
    found = row.kind;
  }
  return found;
}

void Type::clear(AxisSet gone) {
  for (AxisSet &set : axes)
    set -= gone;
  unknown -= gone;
  shard_dim |= nibbles_of(gone);
  shard_order &= ~nibbles_of(gone);
}

void Type::set_kind(AxisSet set, Kind kind) {
  clear(set);
  of(kind) |= set;
}

void Type::set_kind(AxisId axis, Kind kind) { set_kind(AxisSet(axis), kind); }

void Type::set_either(AxisSet set) {
  set_kind(set, Kind::Replicate);
  of(Kind::Invariant) |= set;
}

void Type::set_zero(AxisSet set) {
  set_either(set);
  of(Kind::Partial) |= set;
}

void Type::set_unknown(AxisSet set) {
  clear(set);
  unknown |= set;
}

std::optional<unsigned> Type::dim(AxisId axis) const {
  unsigned found = nibble(shard_dim, axis);
  return found == 0xF ? std::nullopt : std::optional<unsigned>(found);
}

void Type::set_shard(AxisId axis, unsigned dim, unsigned order) {
  set_kind(axis, Kind::Varying);
  set_nibble(shard_dim, axis, dim);
  set_nibble(shard_order, axis, order);
}

void Type::set_combiner(AxisId axis, Combiner combiner) {
  set_nibble(shard_order, axis, static_cast<unsigned>(combiner));
}

AxisSet Type::sharded() const {
  return shard_dim == kUnsharded ? AxisSet() : of(Kind::Varying) & axes_in(~shard_dim);
}

AxisSet Type::combining() const {
  if (shard_order == 0)
    return {};
  AxisSet set;
  for (AxisId axis : of(Kind::Partial) - either())
    if (combiner(axis) != Combiner::Sum)
      set |= axis;
  return set;
}

Type Type::without_shards() const {
  if (shard_dim == kUnsharded)
    return *this;
  Type type = *this;
  type.shard_dim |= nibbles_of(of(Kind::Varying));
  type.shard_order &= ~nibbles_of(of(Kind::Varying));
  return type;
}

void Type::drop_shards(AxisSet gone) {
  AxisSet cut = sharded();
  gone &= cut;
  if (gone == cut) {
    shard_dim |= nibbles_of(gone);
    shard_order &= ~nibbles_of(gone);
    return;
  }
  for (AxisId axis : gone) {
    std::optional<unsigned> dropped = dim(axis);
    for (AxisId other : of(Kind::Varying))
      if (dim(other) == dropped && order(other) > order(axis))
        set_nibble(shard_order, other, order(other) - 1);
    set_nibble(shard_dim, axis, 0xF);
    set_nibble(shard_order, axis, 0);
  }
}

void Type::renumber_shard_orders() {
  AxisSet cut = sharded();
  Type before = *this;
  for (AxisId axis : cut) {
    unsigned outer = 0;
    for (AxisId other : cut)
      outer += before.dim(other) == before.dim(axis) && before.order(other) < before.order(axis);
    set_nibble(shard_order, axis, outer);
  }
}

Type Type::without_shards(AxisSet axes) const {
  Type type = *this;
  type.drop_shards(axes);
  return type;
}

Type Type::dual() const {
  Type type = *this;
  for (AxisSet &set : type.axes)
    set = {};
  for (const KindInfo &row : kKinds)
    type.of(row.dual) |= of(row.kind);
  return type;
}

} // namespace spmd::ir
