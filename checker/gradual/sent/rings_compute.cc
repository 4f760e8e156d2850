// What an equation makes of blocks of several ranks.
#include "checker/gradual/sent/rings_computing.h"

#include "checker/gradual/axis_size_numbers.h"

#include "rules/apply.h"
#include "rules/factors/shape_rule.h"
#include "rules/shapes/attrs.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"

#include <bit>

namespace spmd::checker {

using ir::AxisId;
using ir::ValueId;

void Rings::Computing::run() {
  take_operands();
  align();
  bool tile = false;
  for (uint32_t r = 0; r < step.results; ++r) {
    size_t cuts = 0;
    for (const Met &one : met)
      if (const std::optional<DimRange> at = place(r, one.at)) {
        ++cuts; // of a flat tensor, no type says where a block lies
        tile |= read.size() == 1 && rings.sent_.contains(step.result(r).index) &&
                at->inner * at->extent != rings.extent(step.result(r), at->dim);
      }
    tile |= cuts > 1;
  }
  if (!held && !tile)
    return;
  step.facts.axis = step.axis;
  for (uint32_t r = 0; r < step.results; ++r) {
    summed.clear();
    for (const Met &one : met)
      if (!one.mixed && !place(r, one.at))
        summed.push_back(&one);
    const std::optional<RingValue> found = known ? content(r) : std::nullopt;
    RingValue made = found ? *found : loose(r);
    made.cuts.clear();
    made.collected.reset();
    if (const auto at = across && known && found ? place(r, *across) : std::nullopt)
      made.collected = {at->dim, collected->length, collected->back};
    made.uniform = made.guessed = false;
    made.proved = true;
    for (const Met &one : met)
      if (const std::optional<DimRange> at = one.mixed ? std::nullopt : place(r, one.at))
        made.cuts.push_back({*at, one.back});
    for (size_t i : read)
      if (args[i]) {
        made.proved &= args[i]->pure || args[i]->proved;
        made.guessed |= args[i]->guessed;
        if (args[i]->sent_by.valid() &&
            (!made.sent_by.valid() || made.sent_by.index < args[i]->sent_by.index))
          made.sent_by = args[i]->sent_by;
      }
    rings.finish(step, r, std::move(made));
  }
}

// The blocks of all ranks, side by side in the order in which they have come.
bool Rings::collect(Step &step, const rules::Application &app) {
  const auto dims = rules::placed_dims(app, rules::DefaultDim::First, rank(step.operands.front()));
  if (!dims || dims->size() != 1 || step.operands.size() < 2)
    return false;
  const unsigned dim = dims->front();
  RingValue made;
  RingValue::Collected all{dim, 0, {}};
  uint64_t blocks = 0, twice = 0;
  for (size_t i = 0; i < step.operands.size(); ++i) {
    const RingValue *held = find(step.operands[i]);
    const RingValue::Cut *cut = nullptr;
    RingValue rest = held ? *held : RingValue();
    for (const RingValue::Cut &each : rest.cuts)
      if (each.at.dim == dim && each.at.inner == 1 &&
          each.at.extent == extent(step.operands[i], dim))
        cut = &each;
    if (!held || !cut || held->axis != step.axis || !held->is_plain() || held->is_zero() ||
        held->collected || (i > 0 && cut->at.extent != all.length))
      return false;
    all.length = cut->at.extent;
    all.back.push_back(cut->back);
    const uint64_t block = uint64_t{1} << cut->back;
    twice = twice ? twice : blocks & block;
    blocks |= block;
    rest.cuts.erase(cut);
    if (i > 0 && (rest.cuts != made.cuts || rest.terms != made.terms))
      return false;
    rest.proved &= i == 0 || made.proved;
    made = rest;
  }
  const std::optional<unsigned> misses = left_out(blocks, step.ranks);
  if (twice || misses) {
    step.facts.fault = twice ? Fault::Repeated : Fault::Missing;
    step.facts.operand = static_cast<uint32_t>(step.operands.size() - 1);
    step.facts.back = twice ? static_cast<unsigned>(std::countr_zero(twice)) : *misses;
    return true;
  }
  if (all.back.size() != step.ranks)
    return false;
  made.terms[0].form = forms_.of(Expressions::Collected, {made.terms[0].form, dim});
  made.collected = std::move(all);
  finish(step, 0, std::move(made));
  return true;
}

// One of them.
bool Rings::pick(Step &step, const rules::Application &app) {
  const RingValue *held = find(step.operands.front());
  if (!held || !held->collected || step.operands.size() != 1 || held->terms.size() != 1)
    return false;
  const auto &[dim, length, back] = *held->collected;
  const auto dims = rules::placed_dims(app, rules::DefaultDim::First, rank(step.operands.front()));
  const auto first = rules::number_attr(app, {"start"});
  if (!dims || dims->size() != 1 || dims->front() != dim ||
      rules::number_attr(app, {"step"}).value_or(1) != 1 || !first || *first < 0 ||
      *first % length != 0 || extent(step.result(0), dim) != length ||
      static_cast<size_t>(*first / length) >= back.size())
    return false;
  RingValue made = *held;
  made.cuts.push_back({{dim, 1, length}, back[static_cast<size_t>(*first / length)]});
  made.terms[0].form = forms_.of(Expressions::Piece, {made.terms[0].form, dim});
  made.collected.reset();
  finish(step, 0, std::move(made));
  return true;
}

// Along which dimensions, of 32 at most, all elements of a result are equal: they were one that was
// stretched.
void Rings::follow_broadcast(const rules::Application &app, ValueId operand, ValueId result) {
  const bool stretches = app.op.row->factors == rules::expand_factors ||
                         app.op.row->factors == rules::expand_as_factors;
  const uint32_t before = broadcast_dims_.lookup(operand.index);
  rules::OperandMismatch problem;
  const rules::Equation &equation = app.op.row->equation.equation;
  const auto binding = rules::bind_operands(app, equation, problem);
  if (!binding || !(before || stretches))
    return;
  rules::Outcome ignored;
  const rules::FactorMap map = rules::map_factors(app, equation, *binding, ignored);
  if (map.args.empty() || !map.args[0] || map.results.empty() || !map.results[0])
    return;
  auto varies = [&](uint8_t factor) {
    for (unsigned d = 0; d < map.args[0]->size(); ++d)
      if (llvm::is_contained((*map.args[0])[d], factor) && !(before >> d & 1) &&
          extent(operand, d).value_or(2) > 1)
        return true;
    return false;
  };
  uint32_t now = 0;
  for (unsigned d = 0; d < map.results[0]->size() && d < 32; ++d)
    if (llvm::none_of((*map.results[0])[d], varies))
      now |= uint32_t{1} << d;
  if (now)
    broadcast_dims_[result.index] = now;
}

void Rings::compute(Step &step) {
  if (pick_member(step))
    return;
  for (ValueId operand : step.operands)
    if (const RingValue *held = find(operand); held && !step.axis_known) {
      step.axis = held->axis;
      step.axis_known = true;
    }
  for (AxisId axis : step.axis_known ? ir::AxisSet() : axes_) {
    unsigned cut = 0;
    for (const rules::TensorInfo &arg : step.app.args)
      cut += step.app.type(arg).dim(axis).has_value();
    const bool views = cut == 1 && step.operands.size() == 1 && moves_elements(step.app.op);
    if ((cut > 1 || views) && !step.axis_known) {
      step.axis = axis;
      step.axis_known = true;
    }
  }
  if (!step.axis_known || step.app.mesh()[step.axis].size() > 64)
    return;
  step.ranks = static_cast<unsigned>(step.app.mesh()[step.axis].size());
  const auto uses = rules::row_uses(step.app);
  if (uses.size() != 1 || !uses[0].row)
    return;
  const rules::Application bound = step.app.bound_to(uses[0]);
  step.facts.axis = step.axis;
  if ((uses[0].row->factors == rules::cat_factors && collect(step, bound)) ||
      (uses[0].row->factors == rules::slice_factors && pick(step, bound)))
    return;
  rules::OperandMismatch problem;
  const auto binding = rules::bind_operands(bound, uses[0].row->equation.equation, problem);
  if (!binding)
    return;
  rules::Outcome ignored;
  const rules::FactorMap map =
      rules::map_factors(bound, uses[0].row->equation.equation, *binding, ignored);
  if (map.mismatched)
    return;
  Computing{*this, step, bound, *uses[0].row, map}.run();
}

} // namespace spmd::checker
