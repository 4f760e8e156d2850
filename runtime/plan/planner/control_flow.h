// Bodies that instructions run. Calls are put in place, scans unrolled: how often they run is
// known. Branches and loops become ranges of steps, entered by the ranks whose predicate says so.
#pragma once

#include "runtime/plan/planner/values.h"

namespace spmd::runtime {

class Planner;

class ControlFlowPlanner {
public:
  // `bodies`: plans the instructions of a body.
  ControlFlowPlanner(const PlanTask &task, PlanBuilder &builder, BodyValues &values,
                     Planner &bodies)
      : checked_(task.checked), program_(task.program), world_(task.world), plan_(task.plan),
        builder_(builder), values_(values), bodies_(bodies) {}

  llvm::Error plan(PlanSite &site);

private:
  llvm::Error call(PlanSite &site);
  llvm::Error scan(PlanSite &site);
  llvm::Error branch(PlanSite &site);
  llvm::Error loop(PlanSite &site);
  llvm::Expected<ir::FunctionId> region(PlanSite &site, llvm::StringRef role);
  PlanFrame enter(PlanSite &site, uint32_t typing, uint64_t round, bool looped);
  llvm::Error bind(PlanFrame &frame, ir::FunctionId function, llvm::ArrayRef<BufferId> args);
  // The buffers of the results.
  llvm::Expected<llvm::SmallVector<BufferId, 4>> run_body(PlanFrame &frame, ir::FunctionId function,
                                                          llvm::ArrayRef<BufferId> args);
  BufferId row_of(BufferId whole, int64_t row);
  llvm::Expected<int64_t> trip_count(PlanSite &site, llvm::ArrayRef<BufferId> scanned);
  llvm::Expected<BufferId> stack_rows(PlanSite &site, unsigned result,
                                      llvm::ArrayRef<BufferId> rows);

  checker::CheckedProgram &checked_;
  ir::Program &program_;
  const World &world_;
  Plan &plan_;
  PlanBuilder &builder_;
  BodyValues &values_;
  Planner &bodies_;
};

} // namespace spmd::runtime
