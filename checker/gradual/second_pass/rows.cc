// Of the second pass: rows that ranks sort and send to each other, and the experts that they are
// sent to.
#include "checker/gradual/second_pass/second_pass.h"

#include "checker/definitions.h"

#include "rules/transitions/call.h"

#include "ir/mesh/axis_scale.h"

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
  now_.routed = routes_.made(app, state_.operands.values, results, [&](size_t i) {
    return now_.unread.count(static_cast<uint32_t>(i)) != 0;
  });
  now_.open |= now_.routed.astray | now_.routed.unsent;
  for (size_t i = 0; i < state_.args.size() && i < state_.operands.values.size(); ++i) {
    Type type = program_.types[state_.args[i].type];
    const AxisSet own = routes_.owned(state_.operands.values[i]);
    const AxisSet rows = now_.routed.taken_whole() & type.sharded();
    if (app.op.form == rules::OpForm::Transition)
      type.drop_shards(rows); // of which the exchange keeps none as a block
    else
      type.set_kind(rows | (own - now_.routed.astray - now_.routed.unsent), Kind::Replicate);
    type.close_orders();
    state_.args[i].type = state_.intern(type);
  }
}

// The gradient of what is a rank's own has been made of all rows that it was used for.
void SecondPass::keep_rows(InstId id, ValueId value, uint32_t index, Type &type) {
  const ir::Inst &inst = program_.insts[id];
  const ValueId of = program_.values[value].grad_of;
  AxisSet own =
      now_.routed.owned_by(index) & (type.equal() | (type.of(Kind::Varying) - type.sharded()));
  if (of.valid())
    own |= routes_.used_for_sent(of) & type.of(Kind::Partial) & now_.routed.summed;
  own -= now_.routed.astray | now_.routed.unsent | type.unknown | type.zero();
  type.set_kind(own, Kind::Varying);
  routes_.own(value, own - now_.reported);
  if (of.valid())
    for (AxisId axis :
         (routes_.in_entries(of) & type.of(Kind::Partial) & now_.routed.summed) - type.zero())
      cut(type, axis, 0);
  const bool sorted = now_.routed.last && index + 1 != inst.result_count;
  for (AxisId axis : now_.routed.rows - now_.routed.astray - now_.reported)
    if (type.dim(axis) != 0U && !sorted)
      cut(type, axis, 0);
  type.set_unknown(now_.routed.astray | (sorted ? now_.routed.rows : AxisSet()));
  if (sorted)
    return routes_.count(value, is_float(value) ? AxisSet() : now_.routed.rows);
  if (now_.routed.rows && !is_float(value)) // numbers of rows are what they are
    type.scale = program_.one();
  routes_.learn(value, index, index + 1 == inst.result_count, now_.routed, type);
}

// What one rank has, it computes with as if all had it.
void SecondPass::take_root(const rules::Application &app) {
  now_.on_root = roots_.together(app, state_.operands.values);
  if (!now_.on_root) {
    now_.on_root = roots_.reduced(app);
    return;
  }
  now_.handed_out = app.op.transition == rules::TransitionOp::Broadcast;
  for (size_t i = 0; i < state_.args.size(); ++i)
    if (const Rooted::Seen *seen = roots_.find(state_.operands.values[i])) {
      Type type = program_.types[seen->type];
      if (now_.handed_out)
        type.set_kind(seen->axis, Kind::Varying);
      state_.args[i].type = state_.intern(type);
    }
}

AxisSet SecondPass::proved_on_root(ValueId operand) const {
  const Rooted::Seen *seen = now_.on_root ? roots_.find(operand) : nullptr;
  return seen && seen->proved ? AxisSet(seen->axis) : AxisSet();
}

// A parameter that its owner updates and hands out, while this program does not see it: the
// gradient that it needs for that is the owner's, or that of all, and as large as it should be.
void SecondPass::judge_handed_out(const ir::Inst &inst, const rules::ResolvedOp &op) {
  if (op.transition != rules::TransitionOp::Broadcast || inst.phase != ir::Phase::Optimizer)
    return;
  const rules::Application app{program_,    op, inst.attrs, inst.context, state_.operands.slots,
                               state_.args, {}};
  const std::optional<Rooted::Seen> call = roots_.call(app);
  for (ValueId operand : state_.operands.values) {
    const ValueId gradient = roots_.gradient(storage_of(program_, operand));
    if (!call || !gradient.valid() || roots_.find(operand))
      continue;
    const Rooted::Seen *seen = roots_.find(gradient);
    const Type &type = program_.types[seen ? seen->type : result_.types[gradient.index]];
    const bool known =
        seen ? *seen == *call && seen->proved : result_.proved[gradient.index].contains(call->axis);
    if (!known || !type.equal().contains(call->axis) || !type.scale.valid() ||
        ir::exponent_of(program_, type.scale, type.mesh(), call->axis) != 0)
      now_.open |= call->axis;
  }
}

void SecondPass::keep_root(InstId id, ValueId value, uint32_t index, Type &type) {
  if (now_.on_root && !now_.handed_out) {
    const bool reduces =
        state_.rules.resolve(program_.insts[id].op).transition == rules::TransitionOp::Reduce;
    Type seen = reduces && now_.on_root->type.valid() ? program_.types[now_.on_root->type] : type;
    prove(id, value, index, seen);
    Rooted::Seen on_root = *now_.on_root;
    on_root.type = state_.intern(seen);
    on_root.proved = result_.proved[value.index].contains(on_root.axis);
    roots_.learn(value, on_root);
    result_.proved[value.index] -= on_root.axis; // the others do not have it
    type.set_unknown(on_root.axis);
  } else {
    prove(id, value, index, type);
  }
  roots_.follow_gradient(value);
}

// Integers that a rank makes of how many rows it has for each expert are of its own rows.
AxisSet SecondPass::own_counts_made(ValueId value, const Type &type) const {
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

} // namespace spmd::checker
