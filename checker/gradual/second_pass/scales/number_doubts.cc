// Plain numbers that may be the size of another axis, or of none.
#include "checker/gradual/second_pass/scales/number_doubts.h"

#include "rules/violations/gradients.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::InstId;
using ir::ValueId;
using rules::Computes;
using Doubt = AxisSizeNumbers::Doubt;

// What is divided by what may be too large may be too small.
void NumberDoubts::follow(InstId id, ValueId value) {
  Doubt doubt = gradual_.numbers().doubt(id, result_.types);
  const bool divides = state_.rules.resolve(program_.insts[id].op).computes(Computes::Div);
  for (uint32_t i = 0; i < state_.operands.values.size(); ++i) {
    const auto found = doubts_.find(state_.operands.values[i].index);
    if (found == doubts_.end() || now_.unread.contains(i))
      continue;
    const auto [larger, smaller] = found->second;
    doubt.add(divides && i == 1 ? Doubt{smaller, larger} : Doubt{larger, smaller});
  }
  if (doubt && is_float(value))
    doubts_[value.index].add(doubt);
}

static AxisSet among(const rules::ScaleMismatch &mismatch, const Doubt &found, const Doubt &other) {
  return ((mismatch.axes - mismatch.below) & (found.smaller | other.larger)) |
         (mismatch.below & (found.larger | other.smaller));
}

AxisSet NumberDoubts::open(Place place, const rules::Violation &violation) const {
  const auto *mismatch = violation.as<rules::ScaleMismatch>();
  if (!mismatch || doubts_.empty())
    return {};
  Doubt found, other;
  auto add = [&](ValueId value, bool is_found) {
    (is_found ? found : other).add(doubts_.lookup(value.index));
  };
  if (mismatch->value.valid())
    add(mismatch->value, true);
  if (place.form != Place::Form::Inst)
    return among(*mismatch, found, other);
  const bool compares = llvm::is_contained(state_.operands.values, mismatch->value);
  for (ValueId operand : state_.operands.values)
    add(operand, !compares || operand == mismatch->value);
  return among(*mismatch, found, other);
}

} // namespace spmd::checker
