// Bodies become steps in program order: each instruction is handed to the part that its op belongs
// to.
#pragma once

#include "runtime/plan/planner/boundary.h"
#include "runtime/plan/planner/control_flow.h"
#include "runtime/plan/planner/transitions.h"

namespace spmd::runtime {

class Planner {
public:
  explicit Planner(const PlanTask &task)
      : task_(task), builder_(task), values_(task, builder_), equations_(task, builder_, values_),
        transitions_(task, builder_, values_), storage_(task, builder_, values_, equations_),
        boundary_(task, builder_, values_, equations_, storage_),
        control_flow_(task, builder_, values_, *this) {}

  // The whole program.
  llvm::Error run();
  llvm::Error body(PlanFrame &frame, const ir::Body &body);

private:
  llvm::Error params(PlanFrame &frame);
  llvm::Error instruction(PlanFrame &frame, ir::InstId id);
  llvm::Error read_operands(PlanSite &site);
  llvm::Error dispatch(PlanSite &site);

  PlanTask task_;
  PlanBuilder builder_;
  BodyValues values_;
  EquationPlanner equations_;
  TransitionPlanner transitions_;
  StoragePlanner storage_;
  BoundaryPlanner boundary_;
  ControlFlowPlanner control_flow_;
};

} // namespace spmd::runtime
