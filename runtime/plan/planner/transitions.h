// Transitions become collectives and local steps.
#pragma once

#include "runtime/plan/planner/pieces.h"
#include "runtime/plan/planner/values.h"

namespace spmd::runtime {

class TransitionPlanner {
public:
  TransitionPlanner(const PlanTask &task, PlanBuilder &builder, BodyValues &values)
      : checked_(task.checked), program_(task.program), world_(task.world), options_(task.options),
        plan_(task.plan), builder_(builder), values_(values), pieces_(task, builder) {}

  llvm::Error plan(PlanSite &site);

private:
  llvm::Expected<BufferId> reordered(PlanSite &site, unsigned operand, unsigned result,
                                     llvm::ArrayRef<ir::AxisId> axes);
  llvm::Expected<BufferId> moved(PlanSite &site, BufferId from,
                                 llvm::ArrayRef<rules::TransitionMove> moves, unsigned result);
  llvm::Error keep(PlanSite &site, MovedOperand &at, const rules::TransitionMove &move,
                   llvm::ArrayRef<ir::AxisId> axes);
  llvm::Error gather(MovedOperand &at, const rules::TransitionMove &move);
  llvm::Error take(MovedOperand &at, const rules::TransitionMove &move);
  llvm::Error scatter(MovedOperand &at, const rules::TransitionMove &move);
  llvm::Error place_own(MovedOperand &at, const rules::TransitionMove &move);
  llvm::Error exchange(MovedOperand &at, const rules::TransitionMove &one,
                       const rules::TransitionMove &other);
  // The lengths that a tensor operand of one of these names says, by RankId; empty if there is
  // none, or if they are not known: then it is asked for.
  std::vector<TensorSizes::Lengths> sizes_by(PlanSite &site,
                                             std::initializer_list<llvm::StringRef> names);
  ir::DType wire_dtype(const PlanSite &site, BufferId from) const;
  llvm::Expected<uint32_t> root_of(PlanSite &site, size_t size);
  llvm::Error permute_pairs(PlanSite &site, const rules::TransitionMove &move, size_t size,
                            Communicate &made);

  checker::CheckedProgram &checked_;
  ir::Program &program_;
  const World &world_;
  const PlanOptions &options_;
  Plan &plan_;
  PlanBuilder &builder_;
  BodyValues &values_;
  PiecePlanner pieces_;
};

} // namespace spmd::runtime
