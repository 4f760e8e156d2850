// Of the second pass: rows that ranks sort and send to each other, and the experts that they are
// sent to.
#include "checker/gradual/second_pass.h"

#include "rules/violations/local.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;

// To the rule, what is a rank's own is what all have: it sees one rank's rows and its expert.
void SecondPass::take_rows(const ir::Inst &inst, const rules::Application &app) {
  llvm::SmallVector<ValueId, 2> results;
  for (uint32_t r = 0; r < inst.result_count; ++r)
    results.push_back(inst.result(r));
  routed_ = routes_.made(app, state_.operands.values, results,
                         [&](size_t i) { return unread_.count(static_cast<uint32_t>(i)) != 0; });
  open_axes_ |= routed_.astray;
  for (size_t i = 0; i < state_.args.size() && i < state_.operands.values.size(); ++i) {
    Type type = program_.types[state_.args[i].type];
    const AxisSet own = routes_.owned(state_.operands.values[i]);
    const AxisSet rows = routed_.taken_whole() & type.sharded();
    if (app.op.form == rules::OpForm::Transition)
      type.drop_shards(rows); // of which the exchange keeps none as a block
    else
      type.set_kind(rows | (own - routed_.astray), Kind::Replicate);
    type.close_orders();
    state_.args[i].type = state_.intern(type);
  }
}

// The gradient of what is a rank's own has been made of all rows that it was used for.
void SecondPass::keep_rows(InstId id, ValueId value, uint32_t index, Type &type) {
  const ir::Inst &inst = program_.insts[id];
  const ValueId of = program_.values[value].grad_of;
  AxisSet own = routed_.owned_by(index) & (type.replicated() | type.of(Kind::Invariant) |
                                           (type.of(Kind::Varying) - type.sharded()));
  if (of.valid())
    own |= routes_.owned(of) & type.of(Kind::Partial);
  own -= routed_.astray | type.unknown | type.zero();
  type.set_kind(own, Kind::Varying);
  routes_.own(value, own - reported_axes_);
  if (of.valid())
    for (AxisId axis : (routes_.in_entries(of) & type.of(Kind::Partial)) - type.zero())
      cut(type, axis, 0);
  for (AxisId axis : routed_.rows - routed_.astray - reported_axes_)
    if (type.dim(axis) != 0U)
      cut(type, axis, 0);
  type.set_unknown(routed_.astray);
  if (routed_.rows && !is_float(value)) // numbers of rows are what they are
    type.scale = program_.one();
  routes_.learn(value, index, index + 1 == inst.result_count, routed_, type);
}

// Integers that a rank makes of how many rows it has for each expert are of its own rows.
AxisSet SecondPass::own_counts_made(ValueId value, const Type &type) const {
  AxisSet known = ~AxisSet(), counts;
  for (uint32_t i = 0; i < state_.operands.values.size(); ++i) {
    const ValueId operand = state_.operands.values[i];
    if (unread_.contains(i))
      continue;
    known &= result_.proved[operand.index] | routes_.counts(operand);
    counts |= routes_.counts(operand);
    if (!is_float(operand))
      counts |= program_.types[result_.types[operand.index]].of(Kind::Partial);
  }
  return is_float(value) ? AxisSet()
                         : counts & known & program_.meshes[type.mesh()].typed_axes();
}

} // namespace spmd::checker
