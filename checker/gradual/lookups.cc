// Lookups by index in a table of which each rank has some rows.
#include "checker/gradual/lookups.h"

#include "rules/ops/op.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::ValueId;

// A plain number 0, at its place or in attribute `value`.
static bool fills_with_zero(const rules::Application &app) {
  auto is_zero = [](const ir::AttrValue &value) {
    return (value.form == ir::AttrForm::Integer && value.bits == 0) ||
           (value.form == ir::AttrForm::Float && std::bit_cast<double>(value.bits) == 0);
  };
  for (const rules::Slot &slot : app.slots)
    if (slot.form == rules::Slot::Form::Literal)
      return is_zero(slot.literal);
  const ir::AttrValue *value = app.attr("value");
  return value && is_zero(*value);
}

Lookups::Made Lookups::made(const rules::Application &app, llvm::ArrayRef<ValueId> operands) const {
  Made made;
  if (app.op.form != rules::OpForm::Equation || !app.op.row || operands.empty())
    return made;
  std::string_view name = app.op.row->name;
  if (name == "embedding" && operands.size() >= 2) {
    // The operand of floats is the table.
    for (size_t i = 0; i < 2; ++i) {
      const ir::Shape *shape = app.shape(app.args[i]);
      const ir::Type &table = app.type(app.args[i]), &index = app.type(app.args[1 - i]);
      if (!shape || !ir::differentiable(shape->dtype))
        continue;
      for (ir::AxisId axis : table.sharded() - index.sharded())
        if (table.dim(axis) == 0u)
          made.looked_up |= axis;
    }
    return made;
  }
  AxisSet before = axes_.lookup(operands[0].index);
  if (before && name == "masked_fill" && fills_with_zero(app))
    made.addends = before;
  else if (operands.size() == 1)
    made.looked_up = before; // views and casts
  return made;
}

} // namespace spmd::checker
