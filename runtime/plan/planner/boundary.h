// Boundary ops: most are the same data under another type.
#pragma once

#include "runtime/plan/planner/storage.h"

namespace spmd::runtime {

class BoundaryPlanner {
public:
  BoundaryPlanner(const PlanTask &task, PlanBuilder &builder, BodyValues &values,
                  EquationPlanner &equations, StoragePlanner &storage)
      : checked_(task.checked), program_(task.program), world_(task.world), plan_(task.plan),
        builder_(builder), values_(values), equations_(equations), storage_(storage) {}

  llvm::Error plan(PlanSite &site);

private:
  llvm::Error step_of(PlanSite &site);
  llvm::Error axis_index(PlanSite &site);
  llvm::Error rescale(PlanSite &site);
  llvm::Error random_state(PlanSite &site);
  llvm::Error send_on(PlanSite &site);
  llvm::Error recv(PlanSite &site);
  llvm::Error norm(PlanSite &site, bool clips);
  llvm::Expected<BufferId> total_norm(PlanSite &site);
  llvm::Expected<std::pair<double, double>> factor(PlanSite &site, ir::ScaleId by);
  BufferId combine_all(BufferId from, llvm::ArrayRef<ir::AxisId> axes, ir::Combiner combiner);

  checker::CheckedProgram &checked_;
  ir::Program &program_;
  const World &world_;
  Plan &plan_;
  PlanBuilder &builder_;
  BodyValues &values_;
  EquationPlanner &equations_;
  StoragePlanner &storage_;
  llvm::DenseMap<uint32_t, std::vector<PlannedId>> sent_; // by tag: not yet received, in order
};

} // namespace spmd::runtime
