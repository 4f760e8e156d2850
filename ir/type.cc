// Reading and changing the claims of one type, axis by axis.
#include "ir/type.h"

namespace spmd::ir {

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
  for (AxisId axis : gone) {
    set_nibble(shard_dim, axis, 0xF);
    set_nibble(shard_order, axis, 0);
  }
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
  AxisSet set;
  for (AxisId axis : of(Kind::Varying))
    if (dim(axis))
      set |= axis;
  return set;
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

Type Type::erased() const {
  if (shard_dim == kUnsharded)
    return *this;
  Type type = *this;
  for (AxisId axis : of(Kind::Varying)) {
    set_nibble(type.shard_dim, axis, 0xF);
    set_nibble(type.shard_order, axis, 0);
  }
  return type;
}

void Type::drop_shards(AxisSet gone) {
  if (shard_dim == kUnsharded)
    return;
  for (AxisId axis : gone &of(Kind::Varying)) {
    std::optional<unsigned> dropped = dim(axis);
    if (!dropped)
      continue;
    for (AxisId other : of(Kind::Varying))
      if (dim(other) == dropped && order(other) > order(axis))
        set_nibble(shard_order, other, order(other) - 1);
    set_nibble(shard_dim, axis, 0xF);
    set_nibble(shard_order, axis, 0);
  }
}

void Type::close_orders() {
  AxisSet cut = sharded();
  Type before = *this;
  for (AxisId axis : cut) {
    unsigned outer = 0;
    for (AxisId other : cut)
      outer += before.dim(other) == before.dim(axis) && before.order(other) < before.order(axis);
    set_nibble(shard_order, axis, outer);
  }
}

Type Type::erased(AxisSet axes) const {
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
