// Those with the smallest hashes: the same on all ranks.
#include "runtime/judge/drawn_steps.h"

#include "runtime/judge/last_uses.h"

#include "ir/support/store.h"
#include "rules/boundary/name.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

static bool can_be_drawn(const ir::Program &program, const Plan &plan, const Execution &execution) {
  const ir::Inst &inst = program.insts[execution.inst];
  if (execution.nested || is_alias(program, execution.inst) ||
      rules::boundary_of(program, inst.op) == rules::Boundary::Recv)
    return false;
  llvm::ArrayRef<PlannedId> results = plan.list(execution.results);
  return !results.empty() && llvm::all_of(results, [&](PlannedId id) {
    return id.valid() && plan.values[id].buffer.valid();
  });
}

std::vector<uint32_t> drawn_steps(const ir::Program &program, const Plan &plan, uint64_t seed,
                                  uint64_t number) {
  std::vector<std::pair<uint64_t, uint32_t>> found;
  for (uint32_t e = 0; e < plan.executions.size(); ++e)
    if (can_be_drawn(program, plan, plan.executions[e]))
      found.push_back({ir::mix(seed + 1, e), e});
  llvm::sort(found);
  std::vector<uint32_t> drawn;
  for (size_t i = 0; i < found.size() && i < number; ++i)
    drawn.push_back(found[i].second);
  llvm::sort(drawn);
  return drawn;
}

} // namespace spmd::runtime
