// Lookups by index in a table of which each rank has some rows.
#include "checker/gradual/blocks/lookups.h"

#include "rules/bind.h"
#include "rules/ops/op.h"
#include "rules/shapes/attrs.h"
#include "rules/transitions/call.h"

#include "llvm/ADT/STLExtras.h"

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

// Of which dimension of a table, the operand `table`, the operand `index` picks rows.
struct Pick {
  size_t table, index;
  unsigned dim;
};

static bool is_one(const ir::AttrValue &value) {
  return value.form == ir::AttrForm::Integer && value.as_integer() == 1;
}

// An index for each dimension, as far as there are tensors in the list.
static void picks_of_list(const rules::Application &app, llvm::SmallVectorImpl<Pick> &picks) {
  for (const rules::Slot &slot : app.slots) {
    if (slot.form != rules::Slot::Form::List || slot.literal.form != ir::AttrForm::Integer)
      continue;
    size_t arg = slot.first;
    for (unsigned dim = 0; arg < slot.first + slot.count && dim < 64; ++dim)
      if (slot.literal.bits >> dim & 1)
        picks.push_back({0, arg++, dim});
  }
}

// The dimension of the first operand that is named, if it is one.
static std::optional<unsigned> dim_of_first(const rules::Application &app) {
  const ir::Shape *shape = app.args.empty() ? nullptr : app.shape(app.args[0]);
  if (!shape)
    return std::nullopt;
  const auto dims = rules::placed_dims(app, app.op.row->default_dim, shape->dims.size());
  return dims && dims->size() == 1 ? std::optional(dims->front()) : std::nullopt;
}

static llvm::SmallVector<Pick, 2> picks_of(const rules::Application &app) {
  llvm::SmallVector<Pick, 2> picks;
  if (app.args.size() < 2)
    return picks;
  const ir::Shape *first = app.shape(app.args[0]);
  const ir::AttrValue *sizes = app.attr("slice_sizes");
  if (app.op.computes(rules::Computes::Embedding)) {
    const bool table_first = first && ir::differentiable(first->dtype);
    picks.push_back(table_first ? Pick{0, 1, 0} : Pick{1, 0, 0});
  } else if (app.op.computes(rules::Computes::Gather)) {
    if (std::optional<unsigned> dim = dim_of_first(app))
      picks.push_back({0, 1, *dim});
  } else if (app.op.computes(rules::Computes::Index) && first && sizes &&
             sizes->form == ir::AttrForm::List) {
    llvm::ArrayRef<ir::AttrValue> taken = app.program.lists[sizes->as<ir::AttrListId>()].items;
    for (unsigned d = 0; d < taken.size() && d < first->dims.size(); ++d)
      if (is_one(taken[d]) && first->dims[d] != ir::Extent(1))
        picks.push_back({0, 1, d});
  } else if (app.op.computes(rules::Computes::Index)) {
    picks_of_list(app, picks);
  }
  return picks;
}

// The axes that cut a table along the dimension in which rows are picked, by an index that is not
// cut in the same way.
AxisSet Lookups::own_rows(const rules::Application &app) {
  AxisSet axes;
  for (const Pick &pick : picks_of(app)) {
    const ir::Shape *table = app.shape(app.args[pick.table]),
                    *index = app.shape(app.args[pick.index]);
    if (!table || !ir::differentiable(table->dtype) || !index || index->dtype == ir::DType::Bool)
      continue;
    const ir::Type &of = app.type(app.args[pick.table]);
    for (ir::AxisId axis : of.sharded() - app.type(app.args[pick.index]).sharded())
      if (of.dim(axis) == pick.dim)
        axes |= axis;
  }
  return axes;
}

// Whether a product has an operand that is 0 or 1, as the answers to questions are.
bool Lookups::has_mask(const rules::Application &app, llvm::ArrayRef<ValueId> operands) const {
  for (size_t i = 0; i < operands.size(); ++i) {
    const ir::Shape *shape = i < app.args.size() ? app.shape(app.args[i]) : nullptr;
    if (masks_.contains(operands[i].index) || (shape && shape->dtype == ir::DType::Bool))
      return true;
  }
  return false;
}

// Adds into rows that an index picks of a block.
void Lookups::scatter(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                      Made &made) const {
  const std::optional<unsigned> dim = dim_of_first(app);
  if (app.op.row->variant != rules::Variant::Adds || !dim ||
      llvm::none_of(operands, [&](ValueId each) { return zeroed_.contains(each.index); }))
    return;
  made.dim = *dim;
  made.scattered = app.type(app.args[0]).sharded();
  for (size_t i = 0; i < app.args.size(); ++i)
    for (ir::AxisId axis : made.scattered)
      if (i == 0 ? app.type(app.args[i]).dim(axis) != made.dim
                 : app.type(app.args[i]).sharded().contains(axis))
        made.scattered -= axis;
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
  scatter(app, operands, made);
  const bool fills = !app.op.row->chooses.empty() || app.op.computes(rules::Computes::Put);
  made.mask = operands.size() == 1 && has_mask(app, operands); // views and casts
  const bool by_mask = app.op.computes(rules::Computes::Product) && has_mask(app, operands);
  made.zeroed = by_mask || (fills && fills_with_zero(app, before)) ||
                (operands.size() == 1 && zeroed_.contains(operands[0].index));
  if (by_mask || (before && fills && fills_with_zero(app, before)))
    made.addends = before;
  else if (operands.size() == 1)
    made.looked_up = before; // views and casts
  return made;
}

} // namespace spmd::checker
