// Lookups by index in a table of which each rank has some rows.
#include "checker/gradual/blocks/lookups.h"

#include "checker/gradual/axis_size_numbers.h"
#include "checker/gradual/cuts.h"
#include "checker/program_queries.h"

#include "rules/apply.h"
#include "rules/bind.h"
#include "rules/ops/op.h"
#include "rules/shapes/attrs.h"
#include "rules/transitions/call.h"
#include "rules/violations/operands.h"

#include "ir/claims.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::ValueId;

// A plain number 0, at its place or in attribute `value`, or a tensor of zeros.
static bool fills_with_zero(const rules::Application &app, AxisSet axes) {
  axes = axes ? axes : app.mesh().typed_axes();
  for (const rules::Slot &slot : app.slots)
    if (slot.form == rules::Slot::Form::Literal)
      return rules::is_zero(slot);
  for (const rules::TensorInfo &arg : app.args)
    if (app.type(arg).zero().contains(axes))
      return true;
  const ir::AttrValue *value = app.attr("value");
  return value && rules::is_zero(*value);
}

// What a rank has of a dimension that `axes` cut, the outermost first, as a mask of what
// `number` is counted from; none if the number does not move by its blocks.
static std::optional<Offsets::Mask> own_block(const rules::Application &app,
                                              const Offsets::Number &number,
                                              llvm::ArrayRef<ir::AxisId> axes, int64_t rows) {
  int64_t block = rows, high = 0;
  if (llvm::SubOverflow(rows, number.plus, high))
    return std::nullopt;
  Offsets::Mask mask{number.of, number.steps, -number.plus, high, true, {}};
  for (ir::AxisId axis : llvm::reverse(axes)) {
    const auto step = number.steps.find(axis);
    if (step == number.steps.end() || step->second != -block)
      return std::nullopt;
    if (llvm::MulOverflow(block, app.mesh()[axis].size(), block))
      return std::nullopt;
  }
  return mask;
}

// The axes along which a number moves, that by which it moves most first.
static llvm::SmallVector<ir::AxisId, 2> in_order(const Offsets::Steps &steps) {
  llvm::SmallVector<ir::AxisId, 2> axes;
  for (const auto &[axis, step] : steps)
    axes.push_back(axis);
  llvm::stable_sort(axes, [&](ir::AxisId a, ir::AxisId b) { return steps.at(a) < steps.at(b); });
  return axes;
}

static bool same(const std::optional<Offsets::Mask> &a, const Offsets::Mask &b) {
  return a && a->of == b.of && a->steps == b.steps && a->low == b.low && a->high == b.high &&
         a->inside == b.inside;
}

// Whether a mask keeps all of a block, and what lies beyond one of its ends as well.
static bool is_wider(const Offsets::Mask &mask, const Offsets::Mask &block) {
  if (mask.of != block.of || mask.steps != block.steps || !mask.inside || !block.low || !block.high)
    return false;
  return (!mask.low || *mask.low <= *block.low) && (!mask.high || *mask.high >= *block.high);
}

// Whether the blocks of a mask lie side by side, so that each element is in one.
static bool covers_all(const rules::Application &app, const Offsets::Mask &mask) {
  return mask.low && mask.high &&
         own_block(app, {mask.of, -*mask.low, mask.steps, {}}, in_order(mask.steps),
                   *mask.high - *mask.low);
}

// Where the index of a lookup begins, along axes that cut the table.
void Lookups::place(const rules::Application &app, const rules::Pick &pick, ValueId index,
                    AxisSet axes, Facts &facts) const {
  const Offsets::Number number = offsets_.number(index);
  const std::optional<int64_t> rows = extent_of(app.program, app.args[pick.table].shape, pick.dim);
  llvm::SmallVector<ir::AxisId, 2> order;
  for (ir::AxisId axis : ir::shards_of(app.type(app.args[pick.table]), pick.dim))
    if (axes.contains(axis))
      order.push_back(axis);
  facts.rows = rows ? own_block(app, number, order, *rows) : std::nullopt;
  if (facts.rows)
    return;
  facts.unplaced |= axes;
  if (order.size() == 1 && rows)
    if (const auto step = number.steps.find(order[0]); step != number.steps.end())
      facts.misplaced = {order[0], number.by, -step->second, *rows};
}

static AxisSet cut_along(const ir::Type &type, unsigned dim) {
  AxisSet axes;
  for (ir::AxisId axis : type.sharded())
    if (type.dim(axis) == dim)
      axes |= axis;
  return axes;
}

// Whether an index counts up as many rows as a rank has: each of its own, in their order.
bool Lookups::counts_rows(const rules::Application &app, const rules::Pick &pick,
                          ValueId index) const {
  const std::optional<int64_t> rows = extent_of(app.program, app.args[pick.table].shape, pick.dim);
  return rows && counted_.contains(index.index) &&
         extent_of(app.program, app.args[pick.index].shape, 0) == rows;
}

// The axes that cut a table along the dimension in which rows are picked, by an index that is not
// cut in the same way.
void Lookups::look_up(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                      Facts &facts) const {
  for (const rules::Pick &pick : rules::picks_of(app)) {
    const ir::Shape *table = app.shape(app.args[pick.table]),
                    *index = app.shape(app.args[pick.index]);
    if (!table || !index || index->dtype == ir::DType::Bool)
      continue;
    const AxisSet cut = cut_along(app.type(app.args[pick.table]), pick.dim);
    // Whichever of its rows of a batch a rank takes, they are its own.
    const AxisSet any = cut ? cut & cuts_.batch_axes(operands[pick.table]) : AxisSet();
    if (any) {
      facts.own |= any;
      facts.own_dim = rules::rows_of(app, pick);
    }
    AxisSet axes = cut - any - app.type(app.args[pick.index]).sharded();
    if (axes && counts_rows(app, pick, operands[pick.index])) {
      facts.own |= std::exchange(axes, {});
      facts.own_dim = rules::rows_of(app, pick);
    }
    if (axes.empty() || !ir::differentiable(table->dtype))
      continue;
    facts.looked_up |= axes;
    facts.table = operands[pick.table], facts.index = operands[pick.index];
    place(app, pick, operands[pick.index], axes, facts);
  }
}

// Whether a product has an operand that is 0 or 1, as comparisons are.
bool Lookups::has_mask(const rules::Application &app, llvm::ArrayRef<ValueId> operands) const {
  for (size_t i = 0; i < operands.size(); ++i) {
    const ir::Shape *shape = i < app.args.size() ? app.shape(app.args[i]) : nullptr;
    if (masks_.contains(operands[i].index) || (shape && shape->dtype == ir::DType::Bool))
      return true;
  }
  return false;
}

// The tensor that gives an equation row an operand; none if none does.
static std::optional<size_t> arg_of(const rules::Application &app, std::string_view name) {
  rules::OperandMismatch ignored;
  const rules::Equation &equation = app.op.row->equation.equation;
  const auto binding = rules::bind_operands(app, equation, ignored);
  const unsigned operand = equation.find_operand(name);
  if (!binding || operand >= equation.operand_count || !(*binding)[operand] ||
      (*binding)[operand]->form != rules::Slot::Form::Tensor)
    return std::nullopt;
  return (*binding)[operand]->first;
}

// Where an instruction adds rows to others that an index names.
struct Lookups::Scatter {
  size_t index, source;
  unsigned dim;
  std::optional<int64_t> rows; // that there are
};

// What overwrites zeros adds to them.
std::optional<Lookups::Scatter> Lookups::scatter_of(const rules::Application &app,
                                                    llvm::ArrayRef<ValueId> operands) const {
  if (app.op.computes(rules::Computes::EmbeddingGrad)) {
    const std::optional<size_t> index = arg_of(app, "i"), source = arg_of(app, "g");
    if (!index || !source || app.results.empty())
      return std::nullopt;
    return Scatter{*index, *source, 0, extent_of(app.program, app.results[0].shape, 0)};
  }
  const bool overwrites = app.op.computes(rules::Computes::IndexPut) && app.args.size() >= 3 &&
                          (zero_blocks_.contains(operands[0].index) ||
                           app.type(app.args[0]).zero().contains(app.mesh().typed_axes()));
  if (!(app.op.row->variant == rules::Variant::Adds || overwrites) || app.args.size() < 3)
    return std::nullopt;
  for (const auto &[arg, at] : rules::listed_indices(app))
    if (arg < operands.size() && offsets_.axes(operands[arg]))
      return Scatter{arg, app.args.size() - 1, at, extent_of(app.program, app.args[0].shape, at)};
  const std::optional<size_t> index = arg_of(app, "i"), source = arg_of(app, "s");
  const std::optional<unsigned> dim = app.attr("dim") ? rules::dim_of_first(app) : std::nullopt;
  if (!index || !source || !dim)
    return std::nullopt;
  return Scatter{*index, *source, *dim, extent_of(app.program, app.args[0].shape, *dim)};
}

// Whether a value is zero outside of a rank's own rows: a mask is, as a number.
bool Lookups::has_own_rows(ValueId value, const Offsets::Mask &rows) const {
  if (const Offsets::Mask *mask = offsets_.mask(value))
    return same(*mask, rows);
  const auto at = zeroed_.find(value.index);
  return at != zeroed_.end() && same(at->second.rows, rows);
}

// Whether what was looked up is written back where it was, changed in the rank's own rows alone.
bool Lookups::write_back(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                         Facts &facts) const {
  if (!app.op.computes(rules::Computes::IndexPut) || operands.size() < 3)
    return false;
  const auto source = looked_up_.find(operands.back().index);
  for (const auto &[arg, dim] : rules::listed_indices(app))
    if (source != looked_up_.end() && source->second.rows && source->second.table.valid() &&
        arg < operands.size() && operands[arg] == source->second.index &&
        storage_of(app.program, operands[0]) == storage_of(app.program, source->second.table)) {
      facts.dim = dim;
      facts.scattered = source->second.axes;
      return true;
    }
  return false;
}

// Adds into rows that an index picks of a block.
void Lookups::scatter(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                      Facts &facts) const {
  if (write_back(app, operands, facts))
    return;
  if (const auto call = scatter_of(app, operands); call && call->rows) {
    const Offsets::Number index = offsets_.number(operands[call->index]);
    const auto block = own_block(app, index, in_order(index.steps), *call->rows);
    if (block && !block->steps.empty()) {
      facts.dim = call->dim;
      facts.source = static_cast<uint32_t>(call->source);
      (has_own_rows(operands[call->source], *block) ? facts.scattered : facts.foreign) =
          offsets_.axes(operands[call->index]);
      return;
    }
  }
  const std::optional<unsigned> dim = rules::dim_of_first(app);
  if (app.op.row->variant != rules::Variant::Adds || !dim ||
      llvm::none_of(operands, [&](ValueId each) { return zeroed_.count(each.index); }))
    return;
  facts.dim = *dim;
  facts.scattered = app.type(app.args[0]).sharded();
  for (size_t i = 0; i < app.args.size(); ++i)
    for (ir::AxisId axis : facts.scattered)
      if (i == 0 ? app.type(app.args[i]).dim(axis) != facts.dim
                 : app.type(app.args[i]).sharded().contains(axis))
        facts.scattered -= axis;
}

// The mask of what an instruction does not make zero; none if that is not known.
static std::optional<Offsets::Mask> kept_by(const rules::Application &app, const Offsets &offsets,
                                            llvm::ArrayRef<ValueId> operands) {
  const Offsets::Mask *mask = nullptr;
  for (ValueId operand : operands)
    mask = mask ? mask : offsets.mask(operand);
  if (!mask)
    return std::nullopt;
  Offsets::Mask kept = *mask;
  if (app.op.computes(rules::Computes::Mul))
    return kept;
  bool chosen_is_zero = true; // `Put` writes zeros where the mask is true
  if (!app.op.row->chooses.empty())
    if (const std::optional<size_t> chosen = arg_of(app, app.op.row->chooses))
      chosen_is_zero = app.type(app.args[*chosen]).zero().contains(app.mesh().typed_axes());
  kept.inside = kept.inside != chosen_is_zero;
  return kept;
}

llvm::SmallVector<size_t, 2> Lookups::offset_operands(const rules::Application &app,
                                                      llvm::ArrayRef<ValueId> operands) const {
  llvm::SmallVector<size_t, 2> found;
  if (app.op.form != rules::OpForm::Equation || !app.op.row)
    return found;
  for (const rules::Pick &pick : rules::picks_of(app))
    found.push_back(pick.index);
  if (const std::optional<Scatter> call = scatter_of(app, operands))
    found.push_back(call->index);
  const bool zeroes = !app.op.row->chooses.empty() || app.op.computes(rules::Computes::IndexPut) ||
                      app.op.computes(rules::Computes::Mul);
  for (size_t i = 0; zeroes && i < operands.size(); ++i)
    if (offsets_.mask(operands[i]))
      found.push_back(i);
  llvm::erase_if(
      found, [&](size_t i) { return i >= operands.size() || offsets_.axes(operands[i]).empty(); });
  return found;
}

static bool is_sum(const rules::Application &app) {
  return app.op.computes(rules::Computes::Add) || app.op.computes(rules::Computes::Sub);
}

Lookups::Facts Lookups::infer(const rules::Application &app,
                              llvm::ArrayRef<ValueId> operands) const {
  Facts facts;
  if (app.op.form == rules::OpForm::Transition && operands.size() == 1 &&
      rules::unstated_words(app.op.transition).reduces)
    facts.summed = axes(operands[0]) & rules::communicated_axes(app);
  if (app.op.form != rules::OpForm::Equation || !app.op.row)
    return facts;
  facts.counts = rules::counts_by_one(app) && rules::counted_dim(app.program, app.attrs) == 0;
  if (operands.empty())
    return facts;
  // As one column, or with more dimensions of one element.
  if (operands.size() == 1 && counted_.contains(operands[0].index) && moves_elements(app.op))
    if (const auto count = extent_of(app.program, app.args[0].shape, 0);
        count && app.results.size() == 1 &&
        extent_of(app.program, app.results[0].shape, 0) == count)
      facts.counts = ir::element_count(app.program.shapes[app.args[0].shape]) == *count;
  look_up(app, operands, facts);
  if (facts.looked_up) {
    const ir::AttrValue *fill = app.attr("fill_value");
    if (fill && rules::is_zero(*fill)) // of what is not there
      std::swap(facts.addends, facts.looked_up);
    return facts;
  }
  AxisSet before;
  std::optional<Offsets::Mask> rows;
  ValueId table, index; // as long as what other ranks' rows would give is as it was
  for (uint32_t i = 0; i < operands.size(); ++i)
    if (const auto at = looked_up_.find(operands[i].index); at != looked_up_.end()) {
      before |= at->second.axes;
      facts.masked = i;
      rows = at->second.rows;
      table = at->second.table, index = at->second.index;
    }
  scatter(app, operands, facts);
  if (app.op.computes(rules::Computes::IndexPut))
    for (const auto &[arg, dim] : rules::listed_indices(app))
      if (arg < operands.size() && counts_rows(app, {0, arg, dim}, operands[arg]))
        facts.own |= cut_along(app.type(app.args[0]), dim) - app.type(app.args[arg]).sharded();
  const bool fills = !app.op.row->chooses.empty() || app.op.computes(rules::Computes::IndexPut);
  facts.mask = operands.size() == 1 && has_mask(app, operands); // views and casts
  const bool by_mask = app.op.computes(rules::Computes::Mul) && has_mask(app, operands);
  facts.zeroed = by_mask || (fills && fills_with_zero(app, before));
  if (facts.zeroed) {
    facts.rows = kept_by(app, offsets_, operands);
    if (facts.rows && covers_all(app, *facts.rows))
      for (const auto &[axis, step] : facts.rows->steps)
        facts.shared |= axis;
    facts.addends = before;
    if (before && rows && facts.rows && !same(facts.rows, *rows)) {
      facts.unplaced = before;
      if (is_wider(*facts.rows, *rows))
        facts.beyond = before;
    }
    facts.shared -= before;
  } else if (operands.size() == 2 && rows && is_sum(app) &&
             llvm::any_of(operands, [&](ValueId each) { return has_own_rows(each, *rows); })) {
    facts.looked_up = before;
    facts.rows = rows;
    facts.table = table, facts.index = index;
  } else if (operands.size() == 2 && before && rows && (is_sum(app) || is_product(app.op)) &&
             llvm::any_of(app.args, [&](const rules::TensorInfo &arg) {
               return app.type(arg).same_on_all_ranks().contains(before);
             })) { // with what all ranks have: in the owner's row it is what one device has
    facts.looked_up = before;
    facts.rows = rows;
  } else if (operands.size() == 1) { // views and casts
    facts.looked_up = before;
    if (moves_elements(app.op))
      facts.table = table, facts.index = index;
    const auto zeroed = zeroed_.find(operands[0].index);
    facts.zeroed = zeroed != zeroed_.end();
    facts.rows = facts.zeroed ? zeroed->second.rows : rows;
    if (facts.zeroed)
      facts.shared = zeroed->second.axes;
  }
  return facts;
}

} // namespace spmd::checker
