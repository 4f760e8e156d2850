// Lookups by index in a table of which each rank has some rows.
#include "checker/gradual/lookups.h"

#include "rules/bind.h"
#include "rules/ops/op.h"
#include "rules/transitions/call.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::ValueId;

// A plain number 0, at its place or in attribute `value`, or a tensor of zeros.
static bool fills_with_zero(const rules::Application &app, AxisSet axes) {
  for (const rules::Slot &slot : app.slots)
    if (slot.form == rules::Slot::Form::Literal)
      return rules::is_zero(slot);
  for (const rules::Arg &arg : app.args)
    if (app.type(arg).zero().contains(axes))
      return true;
  const ir::AttrValue *value = app.attr("value");
  return value && rules::is_zero(*value);
}

// Of a table and an index: the axes that cut the table along the dimension in which one row is
// taken, by an index that is not cut alike.
AxisSet Lookups::own_rows(const rules::Application &app) {
  AxisSet axes;
  const bool embeds = app.op.computes(rules::Computes::Embedding);
  if ((!embeds && !app.op.computes(rules::Computes::Index)) || app.args.size() < 2)
    return axes;
  const ir::AttrValue *sizes = app.attr("slice_sizes");
  for (size_t i = 0; i < 2; ++i) { // the operand of floats is the table
    const ir::Shape *shape = app.shape(app.args[i]);
    const ir::Type &table = app.type(app.args[i]), &index = app.type(app.args[1 - i]);
    if (!shape || !ir::differentiable(shape->dtype))
      continue;
    for (ir::AxisId axis : table.sharded() - index.sharded()) {
      const unsigned dim = *table.dim(axis);
      bool rows = embeds && dim == 0;
      if (!embeds && sizes && sizes->form == ir::AttrForm::List) {
        llvm::ArrayRef<ir::AttrValue> taken = app.program.lists[sizes->as<ir::AttrListId>()].items;
        rows = dim < taken.size() && taken[dim].form == ir::AttrForm::Integer &&
               taken[dim].bits == 1 && shape->dims[dim] != ir::Extent(1);
      }
      if (rows)
        axes |= axis;
    }
  }
  return axes;
}

Lookups::Made Lookups::made(const rules::Application &app, llvm::ArrayRef<ValueId> operands) const {
  Made made;
  if (app.op.form == rules::OpForm::Transition && operands.size() == 1 &&
      rules::unstated_words(app.op.transition).reduces)
    made.summed = axes_.lookup(operands[0].index) & rules::communicated_axes(app);
  if (app.op.form != rules::OpForm::Equation || !app.op.row || operands.empty())
    return made;
  if (AxisSet rows = own_rows(app)) {
    const ir::AttrValue *fill = app.attr("fill_value");
    (fill && rules::is_zero(*fill) ? made.addends : made.looked_up) = rows; // of what is not there
    return made;
  }
  AxisSet before;
  for (ValueId operand : operands)
    before |= axes_.lookup(operand.index);
  if (before && !app.op.row->chooses.empty() && fills_with_zero(app, before))
    made.addends = before;
  else if (operands.size() == 1)
    made.looked_up = before; // views and casts
  return made;
}

} // namespace spmd::checker
