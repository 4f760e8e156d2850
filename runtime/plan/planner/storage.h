// Names of storage: what an in-place op wrote through a view is seen through the other views.
#pragma once

#include "runtime/plan/planner/equations.h"

namespace spmd::runtime {

class StoragePlanner {
public:
  StoragePlanner(const PlanTask &task, PlanBuilder &builder, BodyValues &values,
                 EquationPlanner &equations)
      : program_(task.program), rules_(task.rules), plan_(task.plan), builder_(builder),
        values_(values), equations_(equations) {}

  // Which storage the results of an instruction that was planned are names of, and what it wrote.
  void note(PlanSite &site);
  // `alias new, old`: what `old` is a view of, as it is after the write that gave `new`.
  llvm::Error alias(PlanSite &site);

private:
  StorageName name_of(PlanFrame &frame, ir::ValueId value, PlannedId planned);
  llvm::Expected<PlannedId> content_of(PlanFrame &frame, uint32_t storage);
  llvm::Expected<BufferId> replay(PlanFrame &frame, BufferId base,
                                  llvm::ArrayRef<StorageView> views);

  ir::Program &program_;
  rules::Rules &rules_;
  Plan &plan_;
  PlanBuilder &builder_;
  BodyValues &values_;
  EquationPlanner &equations_;
};

} // namespace spmd::runtime
