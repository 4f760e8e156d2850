// Numbers of a rank's own elements: they are no addends of anything.
#include "checker/gradual/second_pass/ranks/own_counts.h"

#include "rules/apply.h"
#include "rules/transitions/call.h"
#include "rules/violations/steps/rings.h"
#include "rules/violations/transitions.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;
using rules::Computes;

// A number of the rank's own beside the rows of its batch is one for each of these rows, as where
// each rank draws its data with another spread. Of integers it may be a position; what divides
// them may be a count, as of a mask that weighs the rows of a mean.
void OwnCounts::take_own_numbers(const rules::Application &app) {
  const bool asks = app.op.row && app.op.row->dtype == rules::DTypeRule::Boolean;
  if (!(app.op.computes(Computes::Mul) || app.op.computes(Computes::Add) ||
        app.op.computes(Computes::Sub) || asks))
    return;
  AxisSet rows;
  for (size_t i = 0; i < app.args.size(); ++i) {
    const ValueId value = state_.operands.values[i];
    const Type &type = app.type(app.args[i]);
    for (AxisId axis : origins_.is_data(value) && is_float(value) ? type.sharded() : AxisSet())
      if (type.dim(axis) == 0U)
        rows |= axis;
  }
  for (size_t i = 0; i < app.args.size() && rows; ++i) {
    const ir::Shape *shape = app.shape(app.args[i]);
    if (!shape || !shape->dims.empty() || !origins_.is_data(state_.operands.values[i]))
      continue;
    Type type = program_.types[state_.args[i].type];
    type.set_kind(rows & (type.of(Kind::Varying) - type.sharded()), Kind::Replicate);
    state_.args[i].type = state_.intern(type);
  }
}

// Rows that a mask has picked: what asks how many they are may not be proved by their cut.
void OwnCounts::judge_selected(const rules::Application &app) {
  picked_ = MaskSelectedRows::picked(app);
  now_.open -= picked_; // the rule asks for whole dimensions, as an index of numbers does
  AxisSet rows;
  for (size_t i = 0; i < state_.operands.values.size() && i < app.args.size(); ++i) {
    const AxisSet own = selected_.own_counts(state_.operands.values[i]);
    counts_ |= own;
    rows |= own & app.type(app.args[i]).sharded();
  }
  if (app.op.form == rules::OpForm::Transition)
    now_.open |= rows & rules::communicated_axes(app);
  else if (rows && MaskSelectedRows::counts_rows(app))
    now_.open |= rows;
  // A block into which rows were put back has its rows again.
  if (app.op.computes(Computes::IndexPut))
    counts_ -= picked_;
  else
    counts_ |= picked_;
}

// What counts or orders a rank's own elements numbers what it has by itself: summed over, it is no
// addend of the whole, but a thing of its own.
void OwnCounts::keep_own(ValueId value, Type &type) {
  AxisSet own = now_.own, before;
  const AxisSet looked_up = lookups_.found().looked_up | lookups_.found().addends;
  for (ValueId operand : state_.operands.values) {
    own |= result_.own[operand.index];
    before |= program_.types[result_.types[operand.index]].of(Kind::Partial);
  }
  own -= looked_up;  // an addend of the whole, when it is masked
  own -= now_.slots; // rows that are where they were before they were numbered
  if (own.empty())
    return;
  const AxisSet made = type.of(Kind::Partial) & own;
  type.set_kind(made - before, Kind::Varying);
  result_.own[value.index] = own & (type.of(Kind::Varying) | type.unknown);
}

void OwnCounts::begin() {
  picked_ = counts_ = {};
  extreme_ = {};
  own_log_ = {};
}

void OwnCounts::judge_extremes(const rules::Application &app) {
  extreme_ = extremes_.infer(app, state_.operands.values);
  now_.open = (now_.open - extreme_.own) | extreme_.mixed;
}

void OwnCounts::judge_logs(InstId id, const rules::Application &app) {
  own_log_ = own_logs_.infer(app, state_.operands.values);
  if (AxisSet axes = own_log_.summed - now_.reported)
    state_.report(Place::inst(id),
                  rules::WrongSource{{0}, {.kind = Kind::Partial}, {.kind = Kind::Varying}, axes});
  if (AxisSet axes = own_log_.unscaled - now_.reported)
    state_.report(Place::inst(id), rules::OwnMaximum{{0}, axes});
}

void OwnCounts::learn(ValueId value, AxisSet pending) {
  extremes_.learn(value, extreme_);
  own_logs_.learn(value, own_log_, pending);
}

void OwnCounts::keep_picked(ValueId value, Type &type) {
  for (AxisId axis : picked_ - type.sharded())
    cut(type, axis, 0);
  selected_.learn(value, counts_ & (type.sharded() | type.of(Kind::Partial)));
}

} // namespace spmd::checker
