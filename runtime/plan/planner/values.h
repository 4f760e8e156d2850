// What a rank holds under a name in one execution of a body. Values that are the same data under
// another type share a buffer.
#pragma once

#include "runtime/plan/planner/builder.h"

namespace spmd::runtime {

class BodyValues {
public:
  BodyValues(const PlanTask &task, PlanBuilder &builder)
      : checked_(task.checked), program_(task.program), plan_(task.plan), builder_(builder) {}

  // For errors: the name, and the body that it stands in.
  std::string who(const PlanFrame &frame, ir::ValueId value) const;
  // An error: no data lie under the name.
  llvm::Expected<PlannedId> find(const PlanFrame &frame, ir::ValueId value) const;
  llvm::Error define(PlanFrame &frame, ir::ValueId value, BufferId buffer);
  llvm::Error define_result(PlanSite &site, unsigned result, BufferId buffer) {
    return define(site.frame, site.inst.result(result), buffer);
  }
  // As many results as there are buffers.
  llvm::Error define_results(PlanSite &site, llvm::ArrayRef<BufferId> buffers);

private:
  checker::CheckedProgram &checked_;
  const ir::Program &program_;
  Plan &plan_;
  PlanBuilder &builder_;
};

} // namespace spmd::runtime
