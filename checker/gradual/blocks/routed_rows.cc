// Orders of rows, through sorts, picks, exchanges and all that keeps rows where they are.
#include "checker/gradual/blocks/routed_rows.h"

#include "checker/gradual/axis_size_numbers.h"
#include "checker/gradual/sent/halo_windows.h"
#include "checker/program_queries.h"

#include "rules/apply.h"
#include "rules/bind.h"
#include "rules/factors/factors.h"
#include "rules/ops/op.h"
#include "rules/ops/registry.h"
#include "rules/shapes/attrs.h"
#include "rules/transitions/call.h"
#include "rules/violations/operands.h"

#include "ir/claims.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::Kind;
using ir::ValueId;
using rules::Computes;

// The axes that cut dimension 0.
static AxisSet cut_rows(const ir::Type &type) {
  AxisSet axes;
  for (ir::AxisId axis : type.sharded())
    if (type.dim(axis) == 0U)
      axes |= axis;
  return axes;
}

// How the spelling takes dimensions apart, or the row under its own name.
static rules::FactorsRule factors_of(const rules::ResolvedOp &op) {
  return op.alias && op.alias->factors ? op.alias->factors : op.row->factors;
}

// The tensors that give an equation row an operand.
static rules::Slot slot_of(const rules::Application &app, std::string_view name) {
  rules::OperandMismatch ignored;
  const rules::Equation &equation = app.op.row->equation.equation;
  const auto binding = rules::bind_operands(app, equation, ignored);
  const unsigned operand = equation.find_operand(name);
  if (!binding || operand >= equation.operand_count || !(*binding)[operand])
    return {};
  return *(*binding)[operand];
}

static std::optional<size_t> arg_of(const rules::Application &app, std::string_view name) {
  const rules::Slot slot = slot_of(app, name);
  return slot.form == rules::Slot::Form::Tensor ? std::optional<size_t>(slot.first) : std::nullopt;
}

// What names rows of the first dimension, and what names elements within them.
struct RowIndex {
  size_t rows;
  llvm::SmallVector<size_t, 2> others;
};

static std::optional<RowIndex> row_index(const rules::Application &app) {
  const rules::Slot slot = slot_of(app, "i");
  if (slot.form == rules::Slot::Form::Tensor) {
    const auto of = arg_of(app, "a");
    if (!of || app.op.row->placed.empty())
      return std::nullopt;
    const auto dims = rules::placed_dims(app, app.op.row->default_dim,
                                         dimension_count(app.program, app.args[*of].shape));
    if (!dims || dims->size() != 1 || dims->front() != 0)
      return std::nullopt;
    return RowIndex{slot.first, {}};
  }
  if (slot.form != rules::Slot::Form::List || slot.literal.form != ir::AttrForm::Integer ||
      slot.count == 0 || !(slot.literal.bits & 1))
    return std::nullopt;
  RowIndex index{slot.first, {}};
  for (uint32_t i = 1; i < slot.count; ++i)
    index.others.push_back(slot.first + i);
  return index;
}

RoutedRows::OrderId RoutedRows::add(Order order) {
  const auto [at, added] =
      ids_.try_emplace({order.form, order.base, order.first, order.second, order.axes.bits()},
                       static_cast<OrderId>(known_.size() + 1));
  if (added)
    known_.push_back(order);
  return at->second;
}

const RoutedRows::Map *RoutedRows::map_of(ValueId value) const {
  const auto at = maps_.find(value.index);
  return at == maps_.end() ? nullptr : &at->second;
}

std::optional<RoutedRows::OrderId> RoutedRows::base_of(const Map &map) const {
  const auto at = bound_.find(map.domain);
  return map.base || at == bound_.end() ? map.base : std::optional(at->second);
}

// What is picked by numbers of which it was not known what they count.
void RoutedRows::bind(const Map &map, OrderId base) {
  if (base_of(map) || map.domain == 0)
    return;
  bound_[map.domain] = base;
  known_[map.domain - 1].away = away(base);
}

int64_t RoutedRows::blocks(ValueId value, AxisSet axes) const {
  int64_t most = 1;
  if (order_of(value) || counts(value)) // which have no place in a whole
    return most;
  for (ir::AxisId axis : axes)
    most = std::max(most, cuts_.blocks(value, axis));
  return most;
}

bool RoutedRows::is_zero(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                         size_t arg) const {
  return zero_blocks_.contains(operands[arg].index) ||
         app.type(app.args[arg]).zero().contains(app.mesh().typed_axes());
}

// How many rows go where, as one number: equal ones are the same. What is moved or converted is
// what it was.
uint64_t RoutedRows::lengths(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                             llvm::StringRef word) {
  constexpr uint64_t kTensors = uint64_t(1) << 32;
  if (const rules::Slot *slot = app.named(word); slot && slot->form == rules::Slot::Form::Tensor) {
    ValueId value = operands[slot->first];
    for (ir::InstId producer = defining_inst(program_, value); producer.valid();
         producer = defining_inst(program_, value)) {
      const rules::ResolvedOp op = rules::resolve_op(program_, program_.insts[producer].op);
      const auto tensors = tensors_of(program_, producer);
      if (tensors.size() != 1 ||
          !(op.computes(Computes::Identity) || op.boundary == rules::Boundary::Alias))
        break;
      value = tensors[0];
    }
    return kTensors + value.index;
  }
  const ir::AttrValue *stated = app.attr(word);
  if (!stated || stated->form != ir::AttrForm::List)
    return 0;
  std::vector<int64_t> numbers;
  for (const ir::AttrValue &item : program_.lists[stated->as<ir::AttrListId>()].items)
    numbers.push_back(item.form == ir::AttrForm::Integer ? item.as_integer() : -1);
  return lists_.try_emplace(numbers, lists_.size() + 1).first->second;
}

// What is sent back by the lengths by which it came is what it was before.
bool RoutedRows::exchange(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                          Facts &facts) {
  if (app.op.transition != rules::TransitionOp::AllToAll || app.args.empty() ||
      !(app.attr("in_splits") || app.attr("out_splits") || app.named("in_splits") ||
        app.named("out_splits")))
    return false;
  facts.counted = true;
  const ir::AttrValue *split = app.attr("split_dim"), *join = app.attr("concat_dim");
  const AxisSet axes = rules::communicated_axes(app), rows = cut_rows(app.type(app.args[0]));
  for (const ir::AttrValue *dim : {split, join})
    if (!dim || dim->form != ir::AttrForm::Integer || dim->as_integer() != 0)
      return false;
  if (!rows.contains(axes))
    return false;
  const uint64_t sent = lengths(app, operands, "in_splits"),
                 received = lengths(app, operands, "out_splits");
  const OrderId before = order_of(operands[0]);
  facts.rows = rows;
  if (before) {
    const Order &last = known_[before - 1];
    if (last.form == Order::Form::Exchanged && last.axes == axes && last.first == received &&
        last.second == sent) {
      facts.order = last.base;
      return true;
    }
  }
  facts.order = add({Order::Form::Exchanged, before, sent, received, axes, away(before) | axes});
  return true;
}

// In which order the rows are sorted. That of the numbers of a sort undoes it.
bool RoutedRows::sort(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                      llvm::ArrayRef<ValueId> results, Facts &facts) {
  if (!app.op.computes(Computes::ArgSort) || app.args.size() != 1 || results.empty() ||
      dimension_count(program_, app.args[0].shape) != 1)
    return false;
  const AxisSet axes = cut_rows(app.type(app.args[0])) | counts(operands[0]);
  const std::optional<int64_t> rows = extent_of(program_, app.args[0].shape, 0);
  if (!axes || !rows)
    return false;
  facts.rows = axes;
  facts.last = true; // the greatest of a rank's own rows are not those of all
  if (const Map *sorted = map_of(operands[0])) {
    if (!sorted->once || sorted->rows != *rows || !base_of(*sorted)) {
      facts.astray = axes;
      return true;
    }
    facts.order = base_of(*sorted);
    facts.map = Map{*facts.order, sorted->domain, *rows, 1, true, axes};
    if (sorted->blocks != 1)
      facts.astray = axes;
    return true;
  }
  std::optional<OrderId> base = order_of(operands[0]);
  facts.order = add({Order::Form::Picked, *base, results.back().index, 0, axes, away(*base)});
  if (counts(operands[0]))
    base = std::nullopt;
  facts.map = Map{*facts.order, base, *rows, blocks(operands[0], axes), true, axes};
  return true;
}

// Which rows a mask has: a column of numbers for each of its dimensions.
bool RoutedRows::find_places(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                             llvm::ArrayRef<ValueId> results, Facts &facts) {
  if (!app.op.computes(Computes::NonZero) || app.args.size() != 1 || results.size() != 1)
    return false;
  const ir::Type &type = app.type(app.args[0]);
  const AxisSet axes = type.sharded() | counts(operands[0]);
  const size_t dims = dimension_count(program_, app.args[0].shape);
  if (!axes || dims == 0)
    return false;
  const OrderId of = order_of(operands[0]);
  facts.rows = axes;
  facts.order = add({Order::Form::Picked, of, results[0].index, 0, axes, away(of)});
  for (unsigned d = 0; d < dims; ++d) {
    AxisSet cut = counts(operands[0]);
    for (ir::AxisId axis : type.sharded())
      if (type.dim(axis) == d)
        cut |= axis;
    const std::optional<int64_t> rows = extent_of(program_, app.args[0].shape, d);
    Map column{*facts.order, of, rows.value_or(0), dims == 1 ? blocks(operands[0], axes) : 1,
               dims == 1,    cut};
    if (counts(operands[0]))
      column.base = std::nullopt;
    facts.columns.push_back(column);
  }
  return true;
}

// Numbers of rows in another form: a column, the entry of which one of several numbers is.
bool RoutedRows::see_map(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                         llvm::ArrayRef<ValueId> results, Facts &facts) {
  const size_t tensors = app.args.size();
  if (tensors != 1 || results.empty())
    return false;
  if (const auto at = columns_.find(operands[0].index); at != columns_.end()) {
    const std::vector<Map> &columns = at->second;
    const ir::AttrValue *index = app.attr("index");
    const bool all = columns.size() == 1 && results.size() == 1;
    const bool one = index && index->form == ir::AttrForm::Integer && index->as_integer() >= 0 &&
                     size_t(index->as_integer()) < columns.size();
    facts.order = columns[0].domain;
    if (!moves_elements(app.op) || !(all || one || results.size() == columns.size()))
      return false;
    facts.rows = columns[0].axes;
    for (const Map &column : columns)
      facts.rows |= column.axes;
    if (all || one)
      facts.map = columns[one ? size_t(index->as_integer()) : 0];
    else
      facts.columns = columns; // of results, each
    return true;
  }
  const Map *map = map_of(operands[0]);
  if (!map)
    return false;
  facts.order = map->domain;
  if (results.size() == 1 && (moves_elements(app.op) || app.op.computes(Computes::Identity))) {
    if (app.op.row->own_dims != rules::OpDef::OwnDims::Fixed)
      return false;
    facts.map = *map;
    facts.rows = map->axes;
    return true;
  }
  std::optional<int64_t> by;
  for (const rules::Slot &slot : app.slots)
    if (slot.form == rules::Slot::Form::Literal && slot.literal.form == ir::AttrForm::Integer)
      by = slot.literal.as_integer();
  const ir::AttrValue *other = app.attr("other");
  if (!by && other && other->form == ir::AttrForm::Integer)
    by = other->as_integer();
  const bool divides = app.op.computes(Computes::FloorDiv);
  // `[n, k]` in one dimension has number i of what is i / k in n; `[k, n]`, of what is i % n.
  if (!(divides || app.op.computes(Computes::Remainder)) || !by || *by <= 0 || !map->base ||
      map->rows % *by != 0 || map->blocks != (divides ? 1 : map->rows / *by))
    return false;
  facts.map = *map;
  facts.map->blocks = 1;
  facts.map->rows = divides ? map->rows / *by : *by;
  facts.map->once = map->once && facts.map->rows == map->rows;
  facts.rows = map->axes;
  return true;
}

// Rows that are picked by such numbers stand in the order of these.
bool RoutedRows::pick(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                      Facts &facts) {
  if (!(app.op.computes(Computes::Index) || app.op.computes(Computes::Gather)))
    return false;
  const std::optional<size_t> table = arg_of(app, "a");
  const std::optional<RowIndex> index = row_index(app);
  const Map *map = index ? map_of(operands[index->rows]) : nullptr;
  if (!table || !map || dimension_count(program_, app.args[index->rows].shape) != 1)
    return false;
  const AxisSet rows = cut_rows(app.type(app.args[*table]));
  if (!rows)
    return false;
  const OrderId of = order_of(operands[*table]);
  facts.rows = rows;
  if (map->axes.contains(rows))
    bind(*map, of);
  bool fits = base_of(*map) == of && blocks(operands[*table], rows) == map->blocks &&
              map->axes.contains(rows) &&
              map->rows == extent_of(program_, app.args[*table].shape, 0);
  for (size_t other : index->others) // numbers of elements, which stand in the order of the rows
    fits &= order_of(operands[other]) == map->domain && !map_of(operands[other]);
  if (!fits) {
    facts.astray = rows;
    return true;
  }
  facts.order = map->domain;
  if (const Map *picked = map_of(operands[*table]))
    facts.map = Map{map->domain,    base_of(*picked),          picked->rows,
                    picked->blocks, picked->once && map->once, rows};
  return true;
}

// Rows that are put where such numbers say stand in the order from which these pick.
bool RoutedRows::put(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                     llvm::ArrayRef<ValueId> results, Facts &facts) {
  const std::optional<size_t> into = arg_of(app, "a"), source = arg_of(app, "s");
  const std::optional<RowIndex> index = row_index(app);
  const Map *map = index ? map_of(operands[index->rows]) : nullptr;
  const bool adds =
      app.op.row->variant == rules::Variant::Adds || rules::flag_attr(app, "accumulate");
  if (!into || !map || results.empty() || !index->others.empty() ||
      app.op.computes(Computes::Index) || app.op.computes(Computes::Gather) ||
      dimension_count(program_, app.args[index->rows].shape) != 1)
    return false;
  const AxisSet target = cut_rows(app.type(app.args[*into]));
  const bool fresh = is_zero(app, operands, *into),
             number = !source || is_zero(app, operands, *source);
  const AxisSet rows = number ? target : cut_rows(app.type(app.args[*source]));
  facts.rows = rows | (fresh ? AxisSet() : target);
  if (!fresh)
    bind(*map, order_of(operands[*into]));
  const std::optional<OrderId> base = base_of(*map);
  const bool fits = rows && base && map->axes.contains(rows) &&
                    (fresh || (target == rows && order_of(operands[*into]) == *base)) &&
                    (number || order_of(operands[*source]) == map->domain) &&
                    blocks(results[0], rows) == map->blocks && (adds || number || map->once) &&
                    map->rows == extent_of(program_, app.args[*into].shape, 0);
  if (fits)
    facts.order = *base;
  else
    facts.astray = facts.rows | map->axes;
  return true;
}

// Rows one behind the other, and all parts of them together again.
bool RoutedRows::take_part(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                           Facts &facts) {
  const rules::FactorsRule factors = factors_of(app.op);
  const bool joins = factors == rules::cat_factors;
  const bool parts = factors == rules::slice_factors || factors == rules::split_factors ||
                     factors == rules::chunk_factors;
  if (!(joins || parts) || operands.empty())
    return false;
  const auto dims = rules::placed_dims(app, rules::DefaultDim::First,
                                       dimension_count(program_, app.args[0].shape));
  if (!dims || dims->size() != 1 || dims->front() != 0)
    return false;
  const OrderId of = order_of(operands[0]);
  if (of == 0 || cut_rows(app.type(app.args[0])).empty())
    return false;
  facts.rows = cut_rows(app.type(app.args[0]));
  if (parts) {
    const std::optional<int64_t> first =
        factors == rules::slice_factors ? first_taken(app, 0) : std::optional<int64_t>(0);
    const ir::AttrValue *step = app.attr("step");
    const std::optional<int64_t> rows = extent_of(program_, app.args[0].shape, 0);
    const bool fits = first && rows &&
                      (!step || (step->form == ir::AttrForm::Integer && step->as_integer() == 1));
    int64_t begin = first.value_or(0);
    for (const rules::ResultClaim &result : app.results) {
      const std::optional<int64_t> length = extent_of(program_, result.shape, 0);
      if (!fits || !length) {
        facts.astray = facts.rows;
        return true;
      }
      const bool all = begin == 0 && length == rows;
      facts.parts.push_back(
          all ? of
              : add({Order::Form::Part, of, uint64_t(begin), uint64_t(begin + *length),
                     known_[of - 1].axes, known_[of - 1].away, *rows}));
      begin += *length;
    }
    return true;
  }
  Order joined = known_[of - 1];
  for (size_t i = 0; i < operands.size(); ++i) {
    const OrderId id = order_of(operands[i]);
    const Order *part = id ? &known_[id - 1] : nullptr;
    if (!part || part->form != Order::Form::Part || part->base != joined.base ||
        part->first != (i ? joined.second : 0)) {
      facts.astray = facts.rows;
      return true;
    }
    joined.second = part->second;
  }
  facts.order = joined.second == uint64_t(joined.rows) ? joined.base : add(joined);
  return true;
}

// One of the experts of which a rank has some, behind one another in a parameter.
bool RoutedRows::take_entry(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                            size_t results, Facts &facts) {
  const rules::FactorsRule factors = factors_of(app.op);
  if (!(factors == rules::select_factors || factors == rules::unbind_factors) || app.args.empty())
    return false;
  const ir::Param *param = program_.find_param(operands[0]);
  const auto dims = rules::placed_dims(app, rules::DefaultDim::First,
                                       dimension_count(program_, app.args[0].shape));
  if (!param || param->role != ir::Role::Param || !dims || dims->size() != 1 || dims->front() != 0)
    return false;
  for (ir::AxisId axis : cut_rows(app.type(app.args[0])))
    if (cuts_.origin(operands[0], axis).value_or(Origin::Stated) != Origin::Stated)
      facts.entries |= axis;
  in_entries_[operands[0].index] |= facts.entries;
  facts.owned.assign(results, facts.entries);
  return !facts.entries.empty();
}

// What stays where it is: rows that meet have to stand in one order.
void RoutedRows::join(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                      llvm::function_ref<bool(size_t)> unread, Facts &facts) {
  AxisSet routed;
  for (ValueId operand : operands) {
    if (const OrderId of = order_of(operand))
      routed |= known_[of - 1].axes;
    if (const Map *map = map_of(operand))
      facts.astray |= map->axes;
  }
  facts.summed = ~AxisSet();
  for (size_t i = 0; i < operands.size() && i < app.args.size(); ++i) {
    if (unread(i) || is_zero(app, operands, i))
      continue;
    const ir::Type &type = app.type(app.args[i]);
    facts.summed -= (type.of(Kind::Varying) | type.of(Kind::Partial) | type.unknown) -
                    away(order_of(operands[i])) - summed(operands[i]) - owned(operands[i]);
    if ((type.sharded() & routed).empty())
      continue;
    const OrderId of = order_of(operands[i]);
    if (facts.order && *facts.order != of)
      facts.astray |= routed;
    facts.order = of;
  }
}

// What experts make of the rows that were sent to them, and what an optimizer makes of experts.
// `of`: the operands that are looked at.
AxisSet RoutedRows::find_owned(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                               llvm::ArrayRef<size_t> of, AxisSet &unsent) const {
  AxisSet own;
  for (size_t i : of)
    own |= owned(operands[i]);
  for (size_t i : of) {
    const ir::Type &type = app.type(app.args[i]);
    const AxisSet others = own - owned(operands[i]);
    const AxisSet sent = away(order_of(operands[i]));
    if (is_zero(app, operands, i))
      continue;
    unsent |= others & type.of(Kind::Partial);
    unsent |= (others & type.sharded()) - sent;
    if (dimension_count(program_, app.args[i].shape) != 0)
      unsent |= others & type.same_on_all_ranks();
  }
  return own;
}

// Of lists, the elements in one place belong together.
void RoutedRows::find_owned(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                            size_t results, llvm::function_ref<bool(size_t)> unread, Facts &facts) {
  for (size_t r = 0; r < results; ++r) {
    llvm::SmallVector<size_t, 4> together;
    for (const rules::Slot &slot : app.slots) {
      const bool zipped =
          results > 1 && slot.form == rules::Slot::Form::List && slot.count == results;
      for (uint32_t i = zipped ? r : 0; i < (zipped ? r + 1 : slot.count); ++i)
        if (slot.first + i < app.args.size() && !unread(slot.first + i))
          together.push_back(slot.first + i);
    }
    facts.owned.push_back(find_owned(app, operands, together, facts.unsent));
    if (app.op.form == rules::OpForm::Transition)
      facts.unsent |= facts.owned.back() & rules::communicated_axes(app);
  }
  for (ValueId operand : operands)
    if (const AxisSet axes = owned(operand) & facts.unsent)
      misused_[storage_of(program_, operand).index] |= axes;
}

RoutedRows::Facts RoutedRows::infer(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                                    llvm::ArrayRef<ValueId> results,
                                    llvm::function_ref<bool(size_t)> unread) {
  Facts facts;
  if (operands.size() != app.args.size())
    return facts;
  const bool computes = app.op.form == rules::OpForm::Equation && app.op.row;
  facts.whole = computes ? sort(app, operands, results, facts) ||
                               find_places(app, operands, results, facts) ||
                               pick(app, operands, facts) || put(app, operands, results, facts) ||
                               take_part(app, operands, facts)
                         : exchange(app, operands, facts);
  if (!facts.whole && !(computes && (see_map(app, operands, results, facts) ||
                                     take_entry(app, operands, results.size(), facts)))) {
    join(app, operands, unread, facts);
    find_owned(app, operands, results.size(), unread, facts);
  }
  return facts;
}

void RoutedRows::learn(ValueId value, uint32_t index, bool last, const Facts &facts,
                       const ir::Type &type) {
  if (facts.astray)
    return;
  if (index < facts.parts.size())
    orders_[value.index] = facts.parts[index];
  else if (facts.order && *facts.order && type.sharded())
    orders_[value.index] = *facts.order;
  summed_[value.index] = facts.summed & type.of(Kind::Partial);
  if (facts.map && last)
    maps_[value.index] = *facts.map;
  if (!facts.columns.empty() && index == 0 && last)
    columns_[value.index] = facts.columns;
  else if (index < facts.columns.size())
    maps_[value.index] = facts.columns[index];
}

} // namespace spmd::checker
