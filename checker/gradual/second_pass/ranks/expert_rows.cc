// Which rows a rank has of those that are sent, and for which of its experts.
#include "checker/gradual/second_pass/ranks/expert_rows.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;

// To the rule, what is a rank's own is what all have: it sees one rank's rows and its expert.
void ExpertRows::take_rows(const ir::Inst &inst, const rules::Application &app) {
  llvm::SmallVector<ValueId, 2> results;
  for (uint32_t r = 0; r < inst.result_count; ++r)
    results.push_back(inst.result(r));
  routed_ = routes_.infer(app, state_.operands.values, results, [&](size_t i) {
    return now_.unread.count(static_cast<uint32_t>(i)) != 0;
  });
  now_.open |= routed_.astray | routed_.unsent;
  for (size_t i = 0; i < state_.args.size() && i < state_.operands.values.size(); ++i) {
    Type type = program_.types[state_.args[i].type];
    const AxisSet own = routes_.owned(state_.operands.values[i]);
    const AxisSet rows = routed_.taken_whole() & type.sharded();
    if (app.op.form == rules::OpForm::Transition)
      type.drop_shards(rows); // of which the exchange keeps none as a block
    else
      type.set_kind(rows | (own - routed_.astray - routed_.unsent), Kind::Replicate);
    type.renumber_shard_orders();
    state_.args[i].type = state_.intern(type);
  }
}

// The gradient of what is a rank's own has been made of all rows that it was used for.
void ExpertRows::keep(InstId id, ValueId value, uint32_t index, Type &type) {
  const ir::Inst &inst = program_.insts[id];
  const ValueId of = program_.values[value].grad_of;
  AxisSet own = routed_.owned_by(index) &
                (type.same_on_all_ranks() | (type.of(Kind::Varying) - type.sharded()));
  if (of.valid())
    own |= routes_.used_for_sent(of) & type.of(Kind::Partial) & routed_.summed;
  own -= routed_.astray | routed_.unsent | type.unknown | type.zero();
  type.set_kind(own, Kind::Varying);
  routes_.own(value, own - now_.reported);
  if (of.valid())
    for (AxisId axis :
         (routes_.in_entries(of) & type.of(Kind::Partial) & routed_.summed) - type.zero())
      cut(type, axis, 0);
  const bool sorted = routed_.last && index + 1 != inst.result_count;
  for (AxisId axis : routed_.rows - routed_.astray - now_.reported)
    if (type.dim(axis) != 0U && !sorted)
      cut(type, axis, 0);
  type.set_unknown(routed_.astray | (sorted ? routed_.rows : AxisSet()));
  if (sorted)
    return routes_.count(value, is_float(value) ? AxisSet() : routed_.rows);
  if (routed_.rows && !is_float(value)) // numbers of rows are what they are
    type.scale = program_.one();
  routes_.learn(value, index, index + 1 == inst.result_count, routed_, type);
}

AxisSet ExpertRows::own_counts_made(ValueId value, const Type &type) const {
  AxisSet known = ~AxisSet(), counts;
  for (uint32_t i = 0; i < state_.operands.values.size(); ++i) {
    const ValueId operand = state_.operands.values[i];
    if (now_.unread.contains(i))
      continue;
    known &= result_.proved[operand.index] | routes_.counts(operand);
    counts |= routes_.counts(operand);
    if (!is_float(operand))
      counts |= program_.types[result_.types[operand.index]].of(Kind::Partial);
  }
  return is_float(value) ? AxisSet() : counts & known & program_.meshes[type.mesh()].typed_axes();
}

AxisSet ExpertRows::keep_counts(ValueId value, const Type &type, AxisSet proved) {
  const AxisSet counts = own_counts_made(value, type) - proved;
  routes_.count(value, counts);
  return counts | routes_.counts(value);
}

} // namespace spmd::checker
