// Types and shapes that are claimed, compared with those that are there.
#include "rules/boundary/claims.h"

#include "rules/shapes/extent_facts.h"
#include "rules/shards/sizes.h"
#include "rules/violations/operands.h"

#include "ir/claims.h"
#include "ir/dialect/print_type.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::rules {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::Type;

namespace {

bool agrees(const Type &found, const Type &claim, AxisId axis, bool gradient_free) {
  AxisSet replicated = found.replicated(), invariant = found.of(Kind::Invariant);
  if (claim.either().contains(axis))
    return (replicated | invariant).contains(axis);
  Kind kind = claim.kind(axis).value_or(Kind::Replicate);
  switch (kind) {
  case Kind::Replicate:
  case Kind::Reduced:
    return (gradient_free ? replicated | invariant : replicated).contains(axis);
  case Kind::Invariant:
    return (gradient_free ? replicated | invariant : invariant).contains(axis);
  case Kind::Varying:
    return found.of(Kind::Varying).contains(axis);
  case Kind::Partial:
    return found.zero().contains(axis) ||
           (found.of(Kind::Partial).contains(axis) && found.combiner(axis) == claim.combiner(axis));
  }
  return false;
}

} // namespace

void join_shards(Type &type, const Type &claim, unsigned dim) {
  llvm::SmallVector<AxisId, 4> axes = ir::shards_of(type, dim);
  llvm::SmallVector<AxisId, 2> claimed = ir::shards_of(claim, dim);
  llvm::erase_if(axes, [&](AxisId axis) { return llvm::is_contained(claimed, axis); });
  for (AxisId axis : claimed)
    if (type.of(Kind::Varying).contains(axis))
      axes.push_back(axis);
  for (unsigned order = 0; order < axes.size(); ++order)
    type.set_shard(axes[order], dim, order);
}

ClaimCheck check_claim(const Type &found, const Type &claim, bool gradient_free, Spec spec) {
  ClaimCheck check;
  check.type = found;
  // The rule rather than the exception: the same claims uphold each other.
  if (found.axes == claim.axes && found.unknown == claim.unknown &&
      found.shard_dim == claim.shard_dim && found.shard_order == claim.shard_order)
    return check;
  for (AxisId axis : claim.claimed() - claim.unknown) {
    bool known = (found.claimed() - found.unknown).contains(axis);
    if (known &&
        (!agrees(found, claim, axis, gradient_free) || !same_shard(found, claim, axis, spec))) {
      check.mismatched |= axis;
    } else if (std::optional<Kind> kind = claim.kind(axis)) {
      bool owned = *kind != Kind::Reduced || gradient_free || !known ||
                   found.of(Kind::Reduced).contains(axis) || found.either().contains(axis);
      if (!owned)
        check.unowned |= axis;
      if (*kind == Kind::Varying && check.type.of(Kind::Varying).contains(axis))
        continue;
      check.type.set_kind(axis, *kind);
      if (*kind == Kind::Partial)
        check.type.set_combiner(axis, claim.combiner(axis));
    } else if (!known) {
      check.type.set_either(axis);
    }
  }
  check.type.set_unknown(check.mismatched | check.unowned);
  uint32_t joined = 0;
  for (AxisId axis : check.type.of(Kind::Varying) & claim.sharded())
    if (std::optional<unsigned> dim = claim.dim(axis);
        !check.type.dim(axis) && !(joined >> *dim & 1))
      join_shards(check.type, claim, *dim), joined |= 1u << *dim;
  return check;
}

bool same_shard(const Type &found, const Type &claim, AxisId axis, Spec spec) {
  std::optional<unsigned> dim = claim.dim(axis);
  if (!dim || (spec == Spec::Joined && !found.dim(axis)))
    return true;
  if (found.dim(axis) != dim)
    return false;
  for (AxisId other : claim.of(Kind::Varying) & found.of(Kind::Varying))
    if (claim.dim(other) == dim && found.dim(other) == dim && other != axis &&
        (claim.order(other) < claim.order(axis)) != (found.order(other) < found.order(axis)))
      return false;
  return true;
}

void take_order(Type &claim, const Type &found) {
  if (claim.mesh() != found.mesh() || claim.shard_dim == Type::kUnsharded ||
      (claim.shard_dim == found.shard_dim && claim.shard_order == found.shard_order))
    return;
  for (unsigned dim = 0; dim < ir::kMaxDims; ++dim) {
    llvm::SmallVector<AxisId, 2> stated = ir::shards_of(claim, dim);
    llvm::SmallVector<AxisId, 2> have = ir::shards_of(found, dim);
    bool listed = llvm::is_sorted(stated, [](AxisId a, AxisId b) { return a.index < b.index; });
    bool same = have.size() == stated.size() &&
                std::is_permutation(have.begin(), have.end(), stated.begin());
    for (unsigned order = 0; listed && same && order < have.size(); ++order)
      claim.set_shard(have[order], dim, order);
  }
}

std::optional<ShapesDiffer> claimed_shape_differs(ir::Program &program, const TensorInfo &arg,
                                                  const Type &claim, ir::ShapeId local,
                                                  ir::ShapeId global, AxisSet judged,
                                                  llvm::SmallVectorImpl<UndecidedExtents> &open) {
  ir::ShapeId found = arg.shape, stated = local;
  auto differ_in = [&](const char *what) {
    std::optional<Violation> differs = shape_differs(program, what, stated, found);
    UndecidedExtents *undecided = differs ? differs->as<UndecidedExtents>() : nullptr;
    if (undecided)
      open.push_back(std::move(*undecided));
    return differs && !undecided;
  };
  bool differ = differ_in("the claim and of what is there");
  const Type &type = program.types[arg.type];
  bool same_shards = type.shard_dim == claim.shard_dim && type.shard_order == claim.shard_order;
  if (!differ && global.valid() && judged && same_shards && !type.unknown &&
      judged.contains(type.of(Kind::Varying))) {
    found = global_shape(program, type, arg), stated = global;
    differ = differ_in("the claim and of what is there on all ranks");
  }
  if (!differ)
    return std::nullopt;
  const ir::Shape &left = program.shapes[stated], &right = program.shapes[found];
  AxisSet axes;
  for (AxisId axis : claim.sharded() | type.sharded())
    for (std::optional<unsigned> dim : {claim.dim(axis), type.dim(axis)})
      if (dim && *dim < left.dims.size() && *dim < right.dims.size() &&
          left.dims[*dim] != right.dims[*dim])
        axes |= axis;
  const char *together = stated == global && stated != local ? " of all ranks" : "";
  return ShapesDiffer{ir::print_shape(program, found) + together,
                      ir::print_shape(program, stated) + together, axes};
}

std::optional<Violation> shape_differs(const ir::Program &program, std::string what,
                                       ir::ShapeId stated, ir::ShapeId found) {
  if (!found.valid() || !stated.valid())
    return std::nullopt;
  const ir::Shape &a = program.shapes[found], &b = program.shapes[stated];
  if (!a.ranked || !b.ranked)
    return std::nullopt;
  bool differs = a.dims.size() != b.dims.size();
  llvm::SmallVector<UndecidedExtents, 0> open;
  for (size_t i = 0; i < a.dims.size() && !differs; ++i)
    differs = a.dims[i] != b.dims[i] && !may_be_equal(program, b.dims[i], a.dims[i], open, [&] {
                return fmt::format("dimension {} of {}", i, what);
              });
  if (!differs)
    return open.empty() ? std::nullopt : std::optional<Violation>(std::move(open.front()));
  return ShapeMismatch{std::move(what), ir::print_shape(program, stated),
                       ir::print_shape(program, found)};
}

void add_shape(Violation violation, Outcome &out) {
  if (auto *open = violation.as<UndecidedExtents>())
    out.undecided.push_back(std::move(*open));
  else
    out.violations.push_back(std::move(violation));
}

std::optional<Violation> value_shape_differs(ir::Program &program, const std::string &what,
                                             const TensorInfo &stated, const TensorInfo &found) {
  if (std::optional<Violation> differs = shape_differs(program, what, stated.shape, found.shape))
    return differs;
  if (!stated.shape.valid() || !found.shape.valid() || !stated.type.valid() ||
      !found.type.valid() || stated.sizes == found.sizes)
    return std::nullopt;
  const Type a = program.types[stated.type], b = program.types[found.type];
  if (a.shard_dim != b.shard_dim || a.shard_order != b.shard_order || a.mesh() != b.mesh())
    return std::nullopt;
  auto whole = [&](const Type &type, const TensorInfo &arg) {
    ir::ShapeId shape = global_shape(program, type, arg);
    return shape.valid() ? ir::print_shape(program, shape) : std::string("unknown");
  };
  return ShapeMismatch{"the shards of " + what, whole(a, stated), whole(b, found)};
}

void take_kinds(Type &type, const Type &from, AxisSet axes) {
  type.clear(axes);
  for (const ir::KindInfo &row : ir::kKinds)
    type.of(row.kind) |= from.of(row.kind) & axes;
  type.unknown |= from.unknown & axes;
}

Type restricted(Type type, AxisSet axes) {
  type.clear(~axes);
  type.scale = {};
  return type;
}

} // namespace spmd::rules
