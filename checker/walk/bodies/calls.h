// Instructions that run bodies: calls, local regions, branches and loops. Internal to the checker.
#pragma once

#include "checker/walk/bodies/bodies.h"
#include "checker/walk/bodies/control_flow.h"
#include "checker/walk/instruction/claims.h"

namespace spmd::checker {

class Calls {
public:
  Calls(WalkState &state, UndecidedKinds &undecided, Claims &claims, Bodies &bodies,
        ControlFlow &control)
      : state_(state), program_(state.program), undecided_(undecided), claims_(claims),
        bodies_(bodies), control_(control) {}

  void run(ir::InstId id, const ir::Inst &inst, const rules::ResolvedOp &op,
           rules::Outcome &outcome);

private:
  void plain_call(CallSite &site);
  ir::AxisSet region_axes(const CallSite &site, const rules::ResolvedOp &op);
  void warn_unchecked_results(const CallSite &site);
  void state_results(const CallSite &site, rules::Outcome &outcome);
  void join_region(const CallSite &site, ir::ValueId result, ir::Type &type, ir::TypeId declared);

  WalkState &state_;
  ir::Program &program_;
  UndecidedKinds &undecided_;
  Claims &claims_;
  Bodies &bodies_;
  ControlFlow &control_;
};

} // namespace spmd::checker
