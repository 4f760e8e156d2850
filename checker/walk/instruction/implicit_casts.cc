// Where LTensor casts.
#include "checker/walk/instruction/implicit_casts.h"

#include "checker/walk/state.h"

#include "rules/violations/coverage.h"
#include "rules/violations/local.h"

#include "ir/claims.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;

static AxisSet mixed_axes(const rules::Outcome &outcome) {
  AxisSet axes;
  for (const rules::Violation &violation : outcome.violations)
    if (violation.is<rules::InvariantMixed>())
      axes |= rules::axes_of(violation);
  return axes;
}

// Shards and stated sums are no matter of LTensor's sets: there the finding stands.
static AxisSet union_axes(const WalkState &state, const rules::Application &app,
                          const rules::Outcome &outcome) {
  AxisSet axes = mixed_axes(outcome), varying;
  for (const rules::TensorInfo &arg : state.args) {
    const ir::Type &type = app.type(arg);
    axes -= type.unknown | (type.sharded() & app.global_axes());
    varying |= type.of(Kind::Varying);
  }
  if (const ir::AttrValue *partial = app.attr("partial");
      partial && partial->form == ir::AttrForm::Axes)
    for (const ir::AxisRef &ref : state.program.axis_refs[partial->as<ir::AxisRefsId>()].refs)
      if (std::optional<AxisId> axis = app.mesh().find(ref.axis))
        axes -= app.mesh().pieces_of(*axis);
  return axes & varying;
}

// What each operand is cast on; none where it is not.
static llvm::SmallVector<AxisSet, 8> mark_on(WalkState &state, AxisSet axes) {
  llvm::SmallVector<AxisSet, 8> casts;
  for (rules::TensorInfo &arg : state.args) {
    ir::Type type = state.program.types[arg.type];
    AxisSet cast = axes & type.of(Kind::Invariant);
    cast -= type.either();
    casts.push_back(type.gradient_free() ? AxisSet() : cast);
    if (casts.back().empty())
      continue;
    type.set_kind(casts.back(), Kind::Varying);
    arg.type = state.intern(type);
  }
  return casts;
}

bool cast_implicitly(WalkState &state, InstId id, const rules::Application &app,
                     const rules::Outcome &outcome) {
  AxisSet axes = union_axes(state, app, outcome);
  if (axes.empty())
    return false;
  const Args before = state.args;
  llvm::SmallVector<AxisSet, 8> casts = mark_on(state, axes);
  if (AxisSet bad = mixed_axes(state.rules.apply(app)) & axes) {
    state.args = before;
    casts = mark_on(state, axes - bad);
  }
  bool any = false;
  for (uint32_t i = 0; i < casts.size(); ++i)
    if (casts[i]) {
      state.report(Place::inst(id), rules::ImplicitCast{{i}, casts[i]});
      any = true;
    }
  return any;
}

} // namespace spmd::checker
