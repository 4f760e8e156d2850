// Communication under a condition that differs between ranks.
#include "checker/walk/bodies/conditions.h"

#include "rules/apply.h"
#include "rules/shards/remesh.h"
#include "rules/transitions/call.h"
#include "rules/violations/control.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;

bool Conditions::push(const Type &condition) {
  Type varying;
  varying.set_mesh(condition.mesh());
  varying.set_kind(program_.meshes[condition.mesh()].typed_axes(), Kind::Replicate);
  varying.set_kind(condition.of(Kind::Varying), Kind::Varying);
  ir::TypeId id = state_.intern(varying);
  if (condition.of(Kind::Varying).empty() || llvm::is_contained(types_, id))
    return false;
  types_.push_back(id);
  return true;
}

void Conditions::judge(InstId id, const rules::Application &app) {
  AxisSet over = rules::communicated_axes(app), varying;
  if (over.empty())
    return;
  for (ir::TypeId condition : types_) {
    rules::Remeshed seen =
        rules::remesh(program_, program_.types[condition], app.op_context().mesh, {});
    varying |= seen.violation ? app.mesh().typed_axes() : seen.type.of(Kind::Varying);
  }
  if (AxisSet axes = over & varying)
    state_.report(Place::inst(id), rules::CollectiveUnderVaryingControl{axes});
}

} // namespace spmd::checker
