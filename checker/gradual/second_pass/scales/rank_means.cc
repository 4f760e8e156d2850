// A mean over a rank's own elements, and the mean over all of them.
#include "checker/gradual/second_pass/scales/rank_means.h"

#include "rules/violations/gradients.h"

#include "ir/mesh/axis_scale.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;
using rules::Computes;

// The number of a rank's own elements divides its own sums: a mean for each rank. Whether all ranks
// have as many is for a recorder to see. Multiplied with it the mean is the sum again.
void RankMeans::take_counts(const ir::Inst &inst, const rules::ResolvedOp &op) {
  uneven_ = axes_in(inst, "counts_differ");
  divided_ = uneven_ | axes_in(inst, "counts_equal");
  const bool divides = op.computes(Computes::Div), multiplies = op.computes(Computes::Mul);
  if (!(divides || multiplies) || state_.args.size() != 2 || !state_.args[1].shape.valid())
    return;
  Type type = program_.types[state_.args[1].type];
  if (const ir::Param *number = program_.find_param(state_.operands.values.back());
      divides && number && number->role == ir::Role::Const && is_scalar(number->value)) {
    // Each rank has another one, such as the number of its own tokens: addends remain addends.
    const AxisSet own =
        type.of(Kind::Varying) & program_.types[state_.args[0].type].of(Kind::Partial);
    uneven_ |= own;
    divided_ |= own;
    now_.open |= own;
    type.set_kind(own, Kind::Replicate);
    state_.args[1].type = state_.intern(type);
  }
  AxisSet pending = type.of(Kind::Partial) - type.zero() - type.unknown;
  if (multiplies)
    pending &= means_.lookup(state_.operands.values[0].index).axes;
  if (!pending || !is_scalar(state_.args[1].shape) || !type.gradient_free())
    return;
  const ir::ScaleId ranks = ir::axes_scale(program_, type.mesh(), pending);
  count_scale_ = divides ? ranks : ir::quotient(program_, program_.one(), ranks);
  // The backward divides by the same number, of which only the forward says what it is.
  const ValueId count = state_.operands.values.back();
  const AxisSet equal = axes_in(inst, "counts_equal") | equal_counts_.lookup(count.index);
  equal_counts_[count.index] = equal;
  if (divides)
    now_.open |= pending - equal;
  divided_ |= divides ? pending : AxisSet();
  type.set_kind(pending, Kind::Replicate);
  state_.args[1].type = state_.intern(type);
}

// Each rank's mean counts once per rank, and so does what is equal on all ranks and added to it: an
// average over them is right for both. So is a sum for addends and a share of what is equal.
void RankMeans::add_to_means(const rules::ResolvedOp &op) {
  if (!(op.computes(Computes::Add) || op.computes(Computes::Sub)) || state_.args.size() != 2)
    return;
  for (size_t mean : {0, 1}) {
    const Type &of = program_.types[state_.args[mean].type];
    Type other = program_.types[state_.args[1 - mean].type];
    const AxisSet equal = other.same_on_all_ranks() - other.zero();
    const ir::ScaleId times = ir::quotient(program_, of.scale, other.scale);
    if (!times.valid() || of.mesh() != other.mesh())
      continue;
    for (AxisId axis : of.of(Kind::Partial) & equal & ~of.zero() & ~of.unknown)
      if (ir::exponent_of(program_, times, of.mesh(), axis) == 1) {
        other.set_kind(axis, Kind::Partial);
        other.scale =
            ir::product(program_, other.scale, ir::axis_scale(program_, other.mesh(), axis));
      }
    state_.args[1 - mean].type = state_.intern(other);
  }
}

// The mean of what was divided by a rank's own count is that of all only where the counts are
// equal, or where the count multiplies it again. What a backward begins with is none of these.
void RankMeans::follow(InstId id, ValueId value, uint32_t index) {
  const rules::ResolvedOp &op = state_.rules.resolve(program_.insts[id].op);
  if (divided_ && index == 0)
    means_[value.index] = {id, divided_, uneven_};
  else if (state_.operands.values.size() == 1)
    if (auto from = means_.find(state_.operands.values[0].index); from != means_.end())
      means_.try_emplace(value.index, Mean(from->second));
  if (index == 0 && op.computes(Computes::Div) && state_.operands.values.size() == 2)
    judge_counts(id, value);
  if (state_.operands.values.size() == 1 && moves_elements(op)) // to a backward, in another shape
    counts_[value.index] = count_of(state_.operands.values[0]);
  const ValueId root = program_.values[value].grad_of;
  const bool seed = op.row && op.row->constant != rules::OpDef::Constant::No;
  if (!root.valid() || !seed)
    return;
  const Mean mean = means_.lookup(root.index);
  // A loss that each rank has of its own is an addend, whatever it was made of.
  const Type &type = program_.types[result_.types[root.index]];
  const Type &own = program_.types[gradual_.by_kinds().types[root.index]];
  const AxisSet loose = type.unknown | (type.of(Kind::Varying) - type.sharded());
  if (AxisSet axes =
          mean.uneven & (type.of(Kind::Partial) | (loose & (own.of(Kind::Partial) | own.unknown))))
    report(mean.by, root, axes);
}

// Where a backward has no loss to begin from, as in JAX: what all ranks have, such as the gradient
// of an average, is divided by a count that has divided a rank's own sum before.
void RankMeans::judge_counts(InstId id, ValueId value) {
  const auto [at, first] =
      by_count_.try_emplace(count_of(state_.operands.values.back()).index, Mean{id, {}, uneven_});
  const AxisSet axes = at->second.uneven & program_.types[state_.args[0].type].same_on_all_ranks();
  if (axes && !first)
    report(at->second.by, value, axes);
}

ValueId RankMeans::count_of(ValueId value) const {
  const auto at = counts_.find(value.index);
  return at == counts_.end() ? value : at->second;
}

void RankMeans::report(InstId by, ValueId loss, AxisSet axes) {
  if (reported_.insert(by.index).second)
    state_.report(Place::inst(by), rules::UnequalCounts{loss, axes});
}

void RankMeans::begin() {
  divided_ = uneven_ = {};
  count_scale_ = program_.one();
}

} // namespace spmd::checker
