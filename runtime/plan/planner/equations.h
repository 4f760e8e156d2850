// Ops of the table become one step each, with results of the extents that their types state, or
// that follow from those of the operands.
#pragma once

#include "runtime/plan/planner/values.h"

namespace spmd::runtime {

class EquationPlanner {
public:
  EquationPlanner(const PlanTask &task, PlanBuilder &builder, BodyValues &values)
      : checked_(task.checked), program_(task.program), world_(task.world), plan_(task.plan),
        builder_(builder), values_(values) {}

  llvm::Error plan(PlanSite &site);
  // The results of an equation on other values than its operands; `dtype`: of the results, if it is
  // not their own.
  llvm::Expected<llvm::SmallVector<BufferId, 2>>
  compute(PlanSite &site, llvm::ArrayRef<PlannedId> values, ir::DType dtype = ir::DType::Unknown);
  // One op of the table on buffers as they stand, for results of known extents.
  BufferId op(llvm::StringRef name, llvm::ArrayRef<rules::Slot> slots,
              llvm::ArrayRef<BufferId> operands, ir::DType dtype, RankDims dims);
  BufferId op(llvm::StringRef name, llvm::ArrayRef<BufferId> operands, ir::DType dtype,
              RankDims dims);

private:
  llvm::Expected<RankDims> result_dims(PlanSite &site, llvm::ArrayRef<PlannedId> values,
                                       unsigned result);
  llvm::Expected<Dims> inferred_dims(PlanSite &site, llvm::ArrayRef<PlannedId> values,
                                     unsigned result, RankId rank);

  checker::CheckedProgram &checked_;
  ir::Program &program_;
  const World &world_;
  Plan &plan_;
  PlanBuilder &builder_;
  BodyValues &values_;
};

} // namespace spmd::runtime
