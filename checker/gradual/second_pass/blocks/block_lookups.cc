// Where rows are looked up, and which of them are a rank's own.
#include "checker/gradual/second_pass/blocks/block_lookups.h"

#include "rules/violations/steps/offsets.h"
#include "rules/violations/transitions.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;

// The index of a lookup in a rank's own rows, and the mask by which the rest is set to zero, are
// to differ between ranks: the rule sees them as equal, and what it says is completed later.
void BlockLookups::take_offset_operands(const rules::Application &app) {
  for (size_t i : lookups_.offset_operands(app, state_.operands.values)) {
    const AxisSet axes = offsets_.axes(state_.operands.values[i]);
    Type type = program_.types[state_.args[i].type];
    type.set_kind(axes & ((type.of(Kind::Varying) - type.sharded()) | type.unknown),
                  Kind::Replicate);
    state_.args[i].type = state_.intern(type);
    offset_axes_ |= axes;
  }
}

// What is looked up in a rank's own rows, and by which index.
void BlockLookups::judge(InstId id, const rules::Application &app) {
  found_ = lookups_.infer(app, state_.operands.values);
  now_.open -= found_.scattered;
  now_.open |= found_.unplaced;
  if (AxisSet axes = found_.summed - now_.reported)
    state_.report(Place::inst(id),
                  rules::WrongSource{{0}, {.kind = Kind::Partial}, {.kind = Kind::Varying}, axes});
  if (const auto &wrong = found_.misplaced; wrong && !now_.reported.contains(wrong->axis))
    state_.report(Place::inst(wrong->by.valid() ? wrong->by : id),
                  rules::BlockOffset{wrong->rows, wrong->step, AxisSet(wrong->axis)});
  if (found_.foreign) {
    const Type &source = app.type(app.args[found_.source]);
    const AxisSet known = result_.proved[state_.operands.values[found_.source].index];
    now_.open |= found_.foreign;
    if (AxisSet axes = found_.foreign & ((source.same_on_all_ranks() & known) - source.zero()) &
                       ~now_.reported)
      state_.report(Place::inst(id), rules::ForeignRows{{found_.source}, axes});
  }
  if (AxisSet axes = found_.beyond - now_.reported)
    state_.report(Place::inst(id), rules::WideMask{{found_.masked}, axes});
  const ir::Inst &inst = program_.insts[id];
  if (inst.result_count != 0)
    offsets_.learn(id, app, state_.operands.values, inst.result(0));
}

// Numbers and masks that differ between ranks by their blocks, and what is made by them.
void BlockLookups::keep_offsets(ValueId value, uint32_t index, Type &type) const {
  if (const AxisSet axes = index == 0 ? offsets_.axes(value) : AxisSet())
    type.set_kind(axes - type.sharded(), Kind::Varying);
  else if (offset_axes_)
    type.set_unknown(
        (offset_axes_ - type.sharded()) -
        (found_.looked_up | found_.addends | found_.scattered | found_.shared | found_.summed));
  type.set_kind(found_.shared & type.same_on_all_ranks(), Kind::Varying);
}

// What was looked up in a rank's own rows is an addend.
void BlockLookups::keep_addends(ValueId value, Type &type) {
  lookups_.learn(value, found_);
  type.set_kind(found_.addends - now_.reported, Kind::Partial);
  now_.open -= ((found_.looked_up | found_.addends) - found_.unplaced) | found_.own;
}

void BlockLookups::begin() {
  found_ = {};
  offset_axes_ = {};
}

void BlockLookups::cut_rows(Type &type) const {
  for (AxisId axis : found_.scattered - type.sharded())
    cut(type, axis, found_.dim);
  for (AxisId axis : found_.own - type.sharded())
    if (found_.own_dim)
      cut(type, axis, *found_.own_dim);
}

} // namespace spmd::checker
