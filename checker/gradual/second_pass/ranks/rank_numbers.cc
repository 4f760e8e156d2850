// Numbers that differ between ranks where one is meant for all.
#include "checker/gradual/second_pass/ranks/rank_numbers.h"

#include "checker/walk/gradients/backward_slice.h"

#include "rules/apply.h"
#include "rules/boundary/claims.h"
#include "rules/violations/gradients.h"
#include "rules/violations/steps/positions.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;
using rules::Computes;

// A number of the script with which an optimizer multiplies, or divides, what it updates.
void RankNumbers::judge_rate(InstId id, const rules::Application &app) {
  if (program_.insts[id].phase != ir::Phase::Optimizer || state_.operands.values.size() != 2 ||
      !is_product(app.op))
    return;
  const ValueId value = state_.operands.values[1];
  const ir::Param *number = program_.find_param(value);
  if (!number || number->role != ir::Role::Const || !is_scalar(value) ||
      is_scalar(state_.operands.values[0]))
    return;
  const Type &type = program_.types[state_.known(value).type];
  if (AxisSet axes = type.of(Kind::Varying) - now_.reported;
      axes && reported_.insert(value.index).second)
    state_.report(Place::inst(id), rules::UnlikeSteps{{1}, axes});
}

void RankNumbers::judge_positions(InstId id, const rules::Application &app,
                                  llvm::ArrayRef<ValueId> results) {
  for (const Numbering::Repeated &each : numbering_.repeated(app, state_.operands.values, results))
    if (AxisSet axes = each.axes - now_.reported;
        axes && program_.insts[id].phase != ir::Phase::Backward &&
        reported_.insert(state_.operands.values[each.operand].index).second)
      state_.report(Place::inst(id), rules::RepeatedPositions{{each.operand}, axes});
  numbering_.learn(app, state_.operands.values, results);
}

void RankNumbers::judge_draws(InstId id, const rules::Application &app,
                              llvm::ArrayRef<ValueId> results) {
  for (const Draws::Repeated &each : draws_.repeated(app, state_.operands.values))
    if (AxisSet axes = each.axes - now_.reported;
        axes && is_forward(program_.insts[id]) &&
        reported_.insert(state_.operands.values[each.operand].index).second)
      state_.report(Place::inst(id), rules::RepeatedDraws{{each.operand}, axes});
  draws_.learn(app, state_.operands.values, results);
}

void RankNumbers::keep(ValueId value, const Type &before, Type &type) const {
  for (AxisId axis :
       type.sharded() & before.same_on_all_ranks()) // as a constant may be, and no number
    if (has_own(value, *type.dim(axis)) || numbering_.is_answer(value)) {
      type.drop_shards(AxisSet(axis));
      rules::take_kinds(type, before, axis);
    }
}

} // namespace spmd::checker
