// Follows comparisons of a rank's place with a number, and what is chosen by them.
#include "checker/gradual/blocks/one_rank_masks.h"

#include "checker/gradual/axis_size_numbers.h"

#include "rules/apply.h"
#include "rules/bind.h"
#include "rules/ops/op.h"
#include "rules/violations/operands.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::ValueId;
using rules::Computes;

// A place along one axis, and nothing else, beside something that all ranks have.
static OneRankMasks::Facts compared_places(const rules::Application &app, const Offsets &offsets,
                                           llvm::ArrayRef<ValueId> operands) {
  if (!app.op.computes(Computes::Equal))
    return {};
  AxisSet axes, same = app.mesh().typed_axes();
  int64_t begins = 0, step = 0; // the number is that of the rank, so many times, and more
  for (size_t i = 0; i < operands.size() && i < app.args.size(); ++i) {
    const Offsets::Number number = offsets.number(operands[i]);
    const ir::Type &type = app.type(app.args[i]);
    if (!number.of.valid() && number.steps.size() == 1 && axes.empty()) {
      axes |= number.steps.begin()->first;
      begins = number.plus;
      step = number.steps.begin()->second;
    } else {
      same &= type.same_on_all_ranks();
    }
  }
  std::optional<int64_t> rank;
  for (const rules::Slot &slot : app.slots)
    if (slot.form == rules::Slot::Form::Literal && slot.literal.form == ir::AttrForm::Integer &&
        step == 1)
      rank = slot.literal.as_integer() - begins;
  return {axes & same, {}, {}, rank};
}

OneRankMasks::Facts OneRankMasks::infer(const rules::Application &app,
                                        llvm::ArrayRef<ValueId> operands,
                                        llvm::function_ref<bool(ValueId)> is_zero) const {
  Facts facts;
  if (app.op.form != rules::OpForm::Equation || !app.op.row)
    return facts;
  facts = compared_places(app, offsets_, operands);
  const bool keeps =
      (operands.size() == 1 && moves_elements(app.op)) || app.op.computes(Computes::LogicalAnd);
  for (ValueId operand : operands)
    if (keeps && mask(operand)) {
      facts.mask |= mask(operand);
      facts.rank = ranks_.lookup(operand.index);
    }
  if (app.op.row->chooses.empty())
    return facts;
  // What is chosen where the mask is true, and zeros elsewhere.
  rules::OperandMismatch ignored;
  const rules::Equation &equation = app.op.row->equation.equation;
  const auto binding = rules::bind_operands(app, equation, ignored);
  const unsigned chosen = equation.find_operand(app.op.row->chooses);
  AxisSet axes, zero = app.mesh().typed_axes();
  for (unsigned i = 0; binding && i < equation.operand_count; ++i) {
    const rules::Slot *slot = (*binding)[i];
    const bool tensor = slot && slot->form == rules::Slot::Form::Tensor;
    const ValueId operand =
        tensor && slot->first < operands.size() ? operands[slot->first] : ValueId();
    if (operand.valid() && mask(operand)) {
      axes |= mask(operand);
      facts.rank = ranks_.lookup(operand.index);
    } else if (i == chosen) {
      zero -= tensor ? app.type(app.args[slot->first]).of(ir::Kind::Partial) : AxisSet();
    } else if (tensor) {
      zero &= is_zero(operand) ? zero : app.type(app.args[slot->first]).zero();
    } else if (!slot || !rules::is_zero(*slot)) {
      zero = {};
    }
  }
  facts.value = facts.scaled = axes & zero;
  return facts;
}

} // namespace spmd::checker
