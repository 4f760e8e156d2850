// Follows edges of blocks through slices, permutations of ranks and joins.
#include "checker/gradual/sent/halo_windows.h"

#include "checker/gradual/axis_size_numbers.h"
#include "checker/program_queries.h"

#include "rules/apply.h"
#include "rules/bind.h"
#include "rules/factors/factors.h"
#include "rules/ops/op.h"
#include "rules/ops/registry.h"
#include "rules/shapes/attrs.h"
#include "rules/transitions/axes.h"
#include "rules/transitions/call.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::ValueId;

// Windows of longer dimensions are not followed, and none that is so far away: their sums fit.
constexpr int64_t kMostRows = int64_t{1} << 31, kFarthest = int64_t{1} << 40;

std::optional<int64_t> first_taken(const rules::Application &app, unsigned dim) {
  auto number = [](const ir::AttrValue &value) {
    return value.form == ir::AttrForm::Integer ? std::optional(value.as_integer()) : std::nullopt;
  };
  if (const ir::AttrValue *strides = app.attr("strides")) {
    const auto steps = rules::numbers_of(app, *strides);
    if (!steps || llvm::any_of(*steps, [](int64_t step) { return step != 1; }))
      return std::nullopt;
  }
  if (rules::number_attr(app, {"step"}).value_or(1) != 1)
    return std::nullopt;
  if (const ir::AttrValue *starts = app.attr("start_indices")) {
    if (starts->form != ir::AttrForm::List)
      return std::nullopt;
    llvm::ArrayRef<ir::AttrValue> items = app.program.lists[starts->as<ir::AttrListId>()].items;
    return dim < items.size() ? number(items[dim]) : std::nullopt;
  }
  if (app.attr("slice_sizes")) { // behind the tensor stands a number for each dimension
    const bool plain =
        dim + 1 < app.slots.size() && app.slots[dim + 1].form == rules::Slot::Form::Literal;
    return plain ? number(app.slots[dim + 1].literal) : std::nullopt;
  }
  const ir::AttrValue *start = app.attr("start");
  return start ? number(*start) : std::nullopt;
}

std::optional<int64_t> HaloWindows::extent(ValueId value, unsigned dim) const {
  return extent_of(program_, checked_.shapes[value.index], dim);
}

// A part of the rows of a block, or of a window.
std::optional<HaloWindows::Window> HaloWindows::taken(const rules::Application &app,
                                                      ValueId operand, ValueId result) const {
  const ir::Shape *from = app.shape(app.args[0]);
  std::optional<unsigned> dim;
  for (unsigned d = 0; from && d < from->dims.size(); ++d)
    if (extent(operand, d) != extent(result, d)) {
      if (dim)
        return std::nullopt;
      dim = d;
    }
  const auto all = dim ? extent(operand, *dim) : std::nullopt;
  const auto length = dim ? extent(result, *dim) : std::nullopt;
  std::optional<int64_t> first = dim ? first_taken(app, *dim) : std::nullopt;
  if (!all || !length || !first)
    return std::nullopt;
  *first += *first < 0 && *first >= -*all ? *all : 0;
  if (*all > kMostRows || *first < 0 || *length > *all || *first > *all - *length)
    return std::nullopt;
  AxisSet axes;
  for (ir::AxisId axis : app.type(app.args[0]).sharded())
    if (app.type(app.args[0]).dim(axis) == *dim)
      axes |= axis;
  if (const auto known = windows_.find(operand.index); known != windows_.end()) {
    Window window = known->second;
    // Another axis may cut that dimension: then these are the edges of its blocks.
    if (window.dim != *dim && (axes - window.axis).empty())
      return window;
    if (window.dim == *dim) {
      window.first += *first;
      window.last = window.first + *length;
      return window;
    }
  }
  if (axes.size() != 1)
    return std::nullopt;
  return Window{*axes.begin(), *dim, *first, *first + *length, *all, false, false, false, {}};
}

std::optional<std::pair<int64_t, bool>> shift_of(const rules::Application &app, int64_t ranks,
                                                 int64_t of_two) {
  const ir::AttrValue *pairs = app.attr("perm");
  if (!pairs || pairs->form != ir::AttrForm::List || ranks < 2)
    return std::nullopt;
  llvm::ArrayRef<ir::AttrValue> items = app.program.lists[pairs->as<ir::AttrListId>()].items;
  std::optional<int64_t> shift;
  bool around = false;
  for (const ir::AttrValue &item : items) {
    const auto pair = rules::numbers_of(app, item);
    if (!pair || pair->size() != 2 ||
        llvm::any_of(*pair, [&](int64_t rank) { return rank < 0 || rank >= ranks; }))
      return std::nullopt;
    int64_t moved = (*pair)[1] - (*pair)[0];
    const int64_t nearest = moved > ranks / 2    ? moved - ranks
                            : moved < -ranks / 2 ? moved + ranks
                                                 : moved;
    around |= nearest != moved;
    moved = nearest;
    if (shift && *shift != moved && (*shift - moved) % ranks != 0)
      return std::nullopt;
    shift = shift.value_or(moved);
  }
  // The pairs that are missing are those around the ends; else some rank gets zeros of a neighbour.
  const auto count = static_cast<int64_t>(items.size());
  if (!shift || *shift == 0)
    return std::nullopt;
  const bool rings = count == ranks;
  if (!rings && (around || count != ranks - std::abs(*shift)))
    return std::nullopt;
  return std::pair(ranks == 2 && rings ? of_two : *shift, rings);
}

std::optional<HaloWindows::Window> HaloWindows::sent(const rules::Application &app,
                                                     ValueId operand) const {
  const auto known = windows_.find(operand.index);
  const AxisSet axes = rules::communicated_axes(app);
  if (known == windows_.end() || axes.size() != 1)
    return std::nullopt;
  Window window = known->second;
  if (window.axis != *axes.begin()) {
    window.astray |= axes;
    return window;
  }
  // The last rows of a block adjoin that of the next rank, the first ones that of the one before.
  const bool last = window.first + window.last > window.rows;
  const auto shift = shift_of(app, app.mesh()[window.axis].size(), last ? 1 : -1);
  if (!shift)
    return std::nullopt;
  if (window.first > kFarthest || window.first < -kFarthest)
    return std::nullopt;
  const int64_t rows = shift->first * window.rows; // what is sent on comes from a rank before
  window.first -= rows;
  window.last -= rows;
  window.sent = true;
  window.wraps = shift->second;
  return window;
}

// Of pairs of numbers, one for each dimension of the windows: this one is of zeros.
static bool pads_nothing(const rules::Application &app, size_t dim) {
  const ir::AttrValue *pairs = app.attr("padding");
  if (!pairs || pairs->form != ir::AttrForm::List)
    return false;
  llvm::ArrayRef<ir::AttrValue> items = app.program.lists[pairs->as<ir::AttrListId>()].items;
  const auto pair = dim < items.size() ? rules::numbers_of(app, items[dim]) : std::nullopt;
  return pair && llvm::all_of(*pair, [](int64_t rows) { return rows == 0; });
}

// The same where attributes give a number for each dimension behind the batch and the channels.
std::optional<HaloWindows::Window> HaloWindows::convolved_by_place(const rules::Application &app,
                                                                   Window window,
                                                                   ValueId result) const {
  constexpr unsigned kSpatial = 2;
  auto number = [&](llvm::StringRef name, int64_t wanted) {
    const auto numbers = rules::numbers_attr(app, {name});
    if (!numbers || numbers->empty())
      return false;
    const size_t at = numbers->size() == 1 ? 0 : window.dim - kSpatial;
    return at < numbers->size() && (*numbers)[at] == wanted;
  };
  if (window.dim < kSpatial || rules::flag_attr(app, "transposed") || !number("stride", 1) ||
      !number("padding", 0) || extent(result, window.dim) != window.rows)
    return std::nullopt;
  window.first = 0, window.last = window.rows;
  return window;
}

// With a kernel of one row a block is a block again.
std::optional<HaloWindows::Window> HaloWindows::convolved_by_one(const rules::Application &app,
                                                                 ValueId operand,
                                                                 ValueId result) const {
  std::optional<Window> found;
  for (ir::AxisId axis : app.type(app.args[0]).sharded())
    if (const unsigned dim = *app.type(app.args[0]).dim(axis); dim > 1) {
      const auto rows = extent(operand, dim);
      if (found || !rows || *rows > kMostRows)
        return std::nullopt;
      found = Window{axis, dim, 0, *rows, *rows, false, false, false, {}};
    }
  return found ? convolved_by_place(app, *found, result) : std::nullopt;
}

// What a convolution without padding leaves of a window: a block, if that has as many rows. Zeros
// between or beside its rows would stand where the neighbours have theirs.
std::optional<HaloWindows::Window> HaloWindows::convolved(const rules::Application &app,
                                                          ValueId operand, ValueId result) const {
  const auto known = windows_.find(operand.index);
  const ir::AttrValue *dims = app.attr("dimension_numbers"), *strides = app.attr("window_strides");
  if (known != windows_.end() && app.op.row->factors == rules::convolution_factors && !dims)
    return convolved_by_place(app, known->second, result);
  if (known == windows_.end() && app.op.row->factors == rules::convolution_factors && !dims)
    return convolved_by_one(app, operand, result);
  if (known == windows_.end() || !dims || !strides)
    return std::nullopt;
  Window window = known->second;
  const auto from = rules::attr_part(app, *dims, "lhs_spec", 0),
             to = rules::attr_part(app, *dims, "out_spec", 2);
  const auto ins = from ? rules::numbers_of(app, *from) : std::nullopt,
             outs = to ? rules::numbers_of(app, *to) : std::nullopt,
             steps = rules::numbers_of(app, *strides);
  constexpr size_t kSpatial = 2; // behind the batch and the feature
  for (size_t i = kSpatial; ins && outs && steps && i < ins->size() && i < outs->size(); ++i)
    if ((*ins)[i] == window.dim && i - kSpatial < steps->size() && (*steps)[i - kSpatial] == 1) {
      window.dim = static_cast<unsigned>((*outs)[i]);
      const auto between = rules::numbers_attr(app, {"lhs_dilation"});
      const bool dense =
          !between || (i - kSpatial < between->size() && (*between)[i - kSpatial] == 1);
      if (!dense || !pads_nothing(app, i - kSpatial) || extent(result, window.dim) != window.rows)
        return std::nullopt;
      window.first = 0, window.last = window.rows;
      return window;
    }
  return std::nullopt;
}

// Windows of the same rows, joined along another dimension.
std::optional<HaloWindows::Window> HaloWindows::joined_beside(llvm::ArrayRef<ValueId> operands,
                                                              unsigned dim) const {
  std::optional<Window> found;
  for (ValueId operand : operands) {
    const auto at = windows_.find(operand.index);
    if (at == windows_.end() || at->second.dim == dim || at->second.astray ||
        (found && (found->axis != at->second.axis || found->dim != at->second.dim ||
                   found->first != at->second.first || found->last != at->second.last)))
      return std::nullopt;
    found = at->second;
  }
  return found;
}

// Whether a value is cut out of another one, and at most reshaped or copied after that.
bool HaloWindows::is_part_of(ValueId value, ValueId whole) const {
  constexpr int kMostOps = 8;
  for (int i = 0; i < kMostOps; ++i) {
    const ValueId from = only_source(program_, value);
    if (!from.valid())
      return false;
    const ir::InstId made = defining_inst(program_, value);
    const rules::ResolvedOp op = rules::resolve_op(program_, program_.insts[made].op);
    if (!rules::moves_elements(op) && !(op.row && op.row->factors == rules::slice_factors))
      return false;
    value = from;
    if (value == whole)
      return true;
  }
  return false;
}

// A block between rows of its own.
HaloWindows::Facts HaloWindows::joined_to_own(const rules::Application &app,
                                              llvm::ArrayRef<ValueId> operands,
                                              unsigned dim) const {
  Facts facts;
  if (operands.size() != 3 || !is_part_of(operands[0], operands[1]) ||
      !is_part_of(operands[2], operands[1]))
    return facts;
  const auto rows = extent(operands[1], dim), ahead = extent(operands[0], dim),
             behind = extent(operands[2], dim);
  if (!rows || !ahead || !behind || *ahead >= *rows || *behind >= *rows)
    return facts;
  for (ir::AxisId axis : app.type(app.args[1]).sharded())
    if (app.type(app.args[1]).dim(axis) == dim)
      facts.fault = Fault::Missing, facts.operand = 1, facts.axes |= axis;
  return facts;
}

// The rows of a block but some at one end, and at the other end as many that all ranks have alike,
// or those that were left out.
HaloWindows::Facts HaloWindows::shifted(const rules::Application &app,
                                        llvm::ArrayRef<ValueId> operands, unsigned dim) const {
  Facts facts;
  for (uint32_t i = 0; i < 2; ++i) {
    const Window *part = find(operands[i]);
    const auto filled = extent(operands[1 - i], dim);
    if (!part || part->dim != dim || part->sent || !filled)
      continue;
    const bool equal = app.type(app.args[1 - i]).same_on_all_ranks().contains(part->axis);
    const bool all = part->last - part->first + *filled == part->rows;
    const bool moved = all && part->first != (i == 0 ? 0 : *filled);
    if (equal && moved)
      facts.fault = Fault::Missing, facts.operand = i, facts.axes |= part->axis;
    const Window *rest = find(operands[1 - i]);
    const bool turns = rest && !rest->sent && rest->axis == part->axis && rest->dim == dim &&
                       rest->rows == part->rows &&
                       rest->first == (part->first == 0 ? part->last : 0);
    // Where halves change places, each may be a block of its own, as two chunks of a sequence are.
    if (turns && moved && dim != 0 && *filled * 2 < part->rows)
      facts.fault = Fault::Shifted, facts.operand = i, facts.axes |= part->axis;
  }
  return facts;
}

// Rows in another order have none: those of a batch may stand in any.
HaloWindows::Facts HaloWindows::rolled(const rules::Application &app) const {
  Facts facts;
  const ir::Shape *shape = app.shape(app.args[0]);
  const auto dims =
      shape ? rules::placed_dims(app, rules::DefaultDim::All, shape->dims.size()) : std::nullopt;
  const ir::Type &type = app.type(app.args[0]);
  for (ir::AxisId axis : dims ? type.sharded() : AxisSet())
    if (const unsigned dim = *type.dim(axis); dim != 0 && llvm::is_contained(*dims, dim))
      facts.fault = Fault::Shifted, facts.axes |= axis;
  return facts;
}

// How many elements a pad puts in front of a dimension.
static std::optional<int64_t> put_in_front(const rules::Application &app, unsigned dim,
                                           unsigned rank) {
  if (const ir::AttrValue *config = app.attr("padding_config")) {
    if (config->form != ir::AttrForm::List)
      return std::nullopt;
    llvm::ArrayRef<ir::AttrValue> items = app.program.lists[config->as<ir::AttrListId>()].items;
    const auto numbers = dim < items.size() ? rules::numbers_of(app, items[dim]) : std::nullopt;
    return numbers && numbers->size() == 3 && (*numbers)[2] == 0 ? std::optional((*numbers)[0])
                                                                 : std::nullopt;
  }
  // Pairs, those of the last dimension first.
  const auto pairs = rules::numbers_attr(app, {"pad"});
  const size_t at = 2 * size_t(rank - 1 - dim);
  if (!pairs)
    return std::nullopt;
  return at < pairs->size() ? (*pairs)[at] : 0;
}

// A dimension that an axis cuts, filled up with a number after a shift, or with its own rows.
HaloWindows::Facts HaloWindows::padded(const rules::Application &app, ValueId operand,
                                       ValueId result) const {
  Facts facts;
  const ir::Type &type = app.type(app.args[0]);
  if (app.op.row->from_attr.empty()) { // no number: rows of the operand
    for (ir::AxisId axis : type.sharded())
      if (extent(operand, *type.dim(axis)) != extent(result, *type.dim(axis)))
        facts.fault = Fault::Missing, facts.axes |= axis;
    return facts;
  }
  const Window *part = find(operand);
  const ir::Shape *shape = app.shape(app.args[0]);
  if (!part || !shape || part->sent || part->is_block() || extent(result, part->dim) != part->rows)
    return facts;
  const auto ahead = put_in_front(app, part->dim, static_cast<unsigned>(shape->dims.size()));
  if (ahead && *ahead != part->first)
    facts.fault = Fault::Missing, facts.axes = AxisSet(part->axis);
  return facts;
}

// Edges of neighbours beside a rank's own rows.
HaloWindows::Facts HaloWindows::joined(const rules::Application &app,
                                       llvm::ArrayRef<ValueId> operands) const {
  Facts facts;
  const ir::Shape *shape = app.args.empty() ? nullptr : app.shape(app.args[0]);
  const auto dims =
      shape ? rules::placed_dims(app, rules::DefaultDim::First, shape->dims.size()) : std::nullopt;
  if (!dims || dims->size() != 1 || operands.size() != app.args.size())
    return facts;
  const unsigned dim = dims->front();
  if (std::optional<Window> beside = joined_beside(operands, dim)) {
    facts.window = beside;
    return facts;
  }
  const Window *edge = nullptr; // of a neighbour
  for (ValueId operand : operands)
    if (const auto at = windows_.find(operand.index);
        at != windows_.end() && at->second.dim == dim && (at->second.sent || at->second.astray))
      edge = edge ? edge : &at->second;
  if (!edge)
    return operands.size() == 2 ? shifted(app, operands, dim) : joined_to_own(app, operands, dim);
  llvm::SmallVector<Window, 4> parts;
  for (size_t i = 0; i < operands.size(); ++i) {
    const auto at = windows_.find(operands[i].index);
    if (at != windows_.end() && at->second.axis == edge->axis && at->second.dim == dim)
      parts.push_back(at->second);
    else if (const auto own = extent(operands[i], dim);
             own == edge->rows && app.type(app.args[i]).dim(edge->axis) == dim)
      parts.push_back({edge->axis, dim, 0, *own, *own, false, false, false, {}});
    else
      return facts;
  }
  auto report = [&](Fault fault, size_t operand, AxisSet axes) {
    if (facts.fault == Fault::None)
      facts.fault = fault, facts.operand = static_cast<uint32_t>(operand), facts.axes = axes;
  };
  for (size_t i = 0; i < parts.size(); ++i)
    if (parts[i].astray)
      report(Fault::Axis, i, parts[i].astray);
  const Window *before = nullptr, *after = nullptr;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Window &part = parts[i];
    if (part.sent && part.last - part.first >= part.rows)
      return {}; // whole blocks may stand in any order
    before = part.sent && part.first < 0 ? &part : before;
    after = part.sent && part.first >= part.rows ? &part : after;
    // Two edges may lie in one buffer.
    if (i > 0 && part.first != parts[i - 1].last && part.sent != parts[i - 1].sent)
      report(Fault::Order, part.sent ? i : i - 1, AxisSet(edge->axis));
  }
  if (before && after && before->wraps != after->wraps)
    report(Fault::Ends, static_cast<size_t>((before->wraps ? after : before) - parts.data()),
           AxisSet(edge->axis));
  for (size_t i = 1; i < parts.size(); ++i)
    if (parts[i].first != parts[i - 1].last)
      return facts;
  if (facts.fault == Fault::None)
    facts.window = Window{edge->axis,        dim,        parts.front().first,
                          parts.back().last, edge->rows, false,
                          edge->wraps,       false,      {}};
  return facts;
}

std::optional<HaloWindows::Window> HaloWindows::copied(ValueId operand) const {
  const auto known = windows_.find(operand.index);
  return known == windows_.end() ? std::nullopt : std::optional(known->second);
}

HaloWindows::Facts HaloWindows::infer(const rules::Application &app,
                                      llvm::ArrayRef<ValueId> operands, ValueId result) const {
  Facts facts;
  if (operands.empty() || app.args.empty())
    return facts;
  if (app.op.transition == rules::TransitionOp::CollectivePermute)
    facts.window = sent(app, operands[0]);
  else if (app.op.form != rules::OpForm::Equation || !app.op.row)
    return facts;
  else if (copies_operand(app.op, operands.size()))
    facts.window = copied(operands.back());
  else if (app.op.row->factors == rules::cat_factors)
    return joined(app, operands);
  else if (app.op.row->factors == rules::pad_factors ||
           (app.op.alias && app.op.alias->factors == rules::lax_pad_factors))
    return padded(app, operands[0], result);
  else if (app.attr("shifts"))
    return rolled(app);
  else if (app.op.row->factors == rules::slice_factors)
    facts.window = taken(app, operands[0], result);
  else if (!windows_.empty() || app.op.row->factors == rules::convolution_factors)
    facts.window = convolved(app, operands[0], result);
  return facts;
}

} // namespace spmd::checker
