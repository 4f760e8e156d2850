// Which of several dimensions a result is cut in.
#include "checker/gradual/second_pass/result_cuts.h"

#include "rules/apply.h"
#include "rules/shards/remesh.h"

#include "ir/claims.h"
#include "ir/support/product.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::Type;
using ir::ValueId;
using rules::Computes;

// Whether two dimensions of what a view makes were one before, or one of several that were merged.
static bool were_one(const ir::Shape &before, const ir::Shape &after, unsigned one,
                     unsigned other) {
  const auto is_number = [](const ir::Extent &extent) { return extent.is_number(); };
  if (!llvm::all_of(before.dims, is_number) || !llvm::all_of(after.dims, is_number))
    return true;
  // By dimension: how many elements lie up to its end.
  const auto reach = [](const ir::Shape &shape) {
    llvm::SmallVector<int64_t, 8> ends;
    for (const ir::Extent &extent : shape.dims)
      ends.push_back(ir::saturating_product(ends.empty() ? 1 : ends.back(), extent.number()));
    return ends;
  };
  const llvm::SmallVector<int64_t, 8> held = reach(before), made = reach(after);
  // A new dimension of one element is of those on either side of it.
  const auto is_new_unit = [&](unsigned d) {
    for (unsigned b = 0; b < before.dims.size(); ++b)
      if (before.dims[b].number() == 1 && held[b] == made[d])
        return false;
    return after.dims[d].number() == 1;
  };
  unsigned first = 0, last = 0; // of dimensions that are made of the same ones, and of those ahead
  for (unsigned d = 0; d < after.dims.size(); ++d) {
    if (!llvm::is_contained(held, made[d]) && made[d] != 1)
      continue;
    const unsigned from = first == d && is_new_unit(d) ? last : first;
    if (std::min(one, other) >= from && std::max(one, other) <= d)
      return true;
    last = from;
    for (first = d + 1; first > from && is_new_unit(first - 1);)
      --first;
  }
  return first < after.dims.size() && std::min(one, other) >= first;
}

// What is made of data is cut where the rule says, whatever other dimension is as long as a block.
// Only a view may have lost which one it is, of several that were one.
void ResultCuts::keep_known_cuts(const rules::OpDef *row, ValueId value, const Type &before,
                                 Type &type) {
  if (!row || row->constant != rules::OpDef::Constant::No)
    return;
  const ir::ShapeId made = gradual_.by_kinds().shapes[value.index];
  const ir::ShapeId of = state_.args.size() == 1 ? state_.args[0].shape : ir::ShapeId();
  for (AxisId axis : before.sharded() & type.sharded()) {
    const unsigned was = *before.dim(axis), is = *type.dim(axis);
    const bool views = row->factors == rules::reshape_factors && made.valid() && of.valid() &&
                       were_one(program_.shapes[of], program_.shapes[made], was, is);
    if (was == is || views)
      continue;
    type.drop_shards(axis);
    cut(type, axis, was);
  }
  // One row of each rank that a view has put into the dimension behind it belongs there, or into
  // the one ahead of it: not there, where a parameter that all ranks have has that dimension.
  const rules::TensorInfo *viewed =
      row->factors == rules::reshape_factors && state_.args.size() == 1 ? &state_.args[0] : nullptr;
  for (AxisId axis : viewed &&of.valid() ? type.sharded() : AxisSet()) {
    const std::optional<unsigned> from = program_.types[viewed->type].dim(axis);
    const bool one = from && program_.shapes[of].dims[*from] == ir::Extent(1);
    if (one && program_.shapes[made].dims[*type.dim(axis)] != ir::Extent(1) &&
        gradual_.cuts().is_whole(value, *type.dim(axis), axis)) {
      type.drop_shards(axis);
      type.set_unknown(axis);
    }
  }
}

// What is pending is so still when it is multiplied by something unknown, which was reported.
void ResultCuts::keep_addends(const rules::ResolvedOp &op, uint32_t result, uint32_t results,
                              Type &type) const {
  if (!is_product(op) || state_.args.size() < results)
    return;
  const Type &kept = program_.types[state_.args[result].type];
  AxisSet pending = kept.of(Kind::Partial) - kept.zero() - kept.unknown;
  type.set_kind(pending & type.unknown & unknown_operands() & ~now_.reported, Kind::Partial);
}

// What is cut out of a bucket is what was put there. `type`: as it would be if nothing were known
// of its parts.
void ResultCuts::restore(ValueId value, Type &type) const {
  const Pieces &pieces = gradual_.pieces();
  const ValueId whole = pieces.whole(value);
  if (!whole.valid() || program_.types[result_.types[whole.index]].mesh() != type.mesh())
    return;
  const Type &before = program_.types[result_.types[whole.index]];
  AxisSet loose = (type.of(Kind::Varying) - type.sharded()) | type.unknown;
  for (AxisId axis : loose - pieces.changed(value) - now_.reported - before.unknown) {
    if (std::optional<Kind> kind = before.kind(axis);
        kind == Kind::Replicate || kind == Kind::Invariant)
      type.set_kind(axis, *kind);
    if (std::optional<unsigned> dim = before.dim(axis);
        dim && pieces.same_shape(value, whole) && ir::shards_of(type, *dim).empty()) {
      type.set_kind(axis, Kind::Varying);
      type.set_shard(axis, *dim, 0);
    }
  }
}

// A number that is stretched over the elements of what it is the gradient of is so for a rank's
// block of them.
void ResultCuts::cut_stretched(ValueId value, Type &type) const {
  const ValueId of = program_.values[value].grad_of;
  if (!of.valid() || program_.types[result_.types[of.index]].mesh() != type.mesh())
    return;
  const Type &block = program_.types[result_.types[of.index]];
  for (AxisId axis : block.sharded() & type.same_on_all_ranks())
    if (gradual_.is_broadcast_along(value, *block.dim(axis)))
      cut(type, axis, *block.dim(axis));
}

void ResultCuts::take_known(const rules::OpDef *row, ValueId value, Type &type) {
  const Type before = type;
  type = gradual_.known(value, type, ~(now_.reported | unknown_operands()));
  cut_stretched(value, type);
  keep_known_cuts(row, value, before, type);
}

} // namespace spmd::checker
