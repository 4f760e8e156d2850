// Values are needed as operands, as names of storage that a later `alias` asks for, and where they
// are received.
#include "runtime/judge/last_uses.h"

#include "ir/support/store.h"
#include "rules/boundary/name.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace spmd::runtime {

using ir::ValueId;

bool is_alias(const ir::Program &program, ir::InstId inst) {
  return program.operand_lists[program.insts[inst].operands].size() > 1 &&
         rules::boundary_of(program, program.insts[inst].op) == rules::Boundary::Alias;
}

ValueId value_received_by(const ir::Program &program, Reference &reference,
                          const Execution &execution) {
  const ir::Inst &inst = program.insts[execution.inst];
  bool receives = execution.call == 0 && inst.result_count == 1 &&
                  reference.resolve(inst.op).boundary == rules::Boundary::Recv;
  return receives ? reference.value_received_by(execution.inst) : ValueId();
}

namespace {

class LastUses {
public:
  LastUses(const ir::Program &program, const Plan &plan) : program_(program), plan_(plan) {
    last_.resize(plan.values.size());
  }

  std::vector<uint32_t> find(Reference &reference) {
    for (uint32_t e = 0; e < plan_.executions.size(); ++e)
      for (PlannedId id : plan_.list(plan_.executions[e].operands))
        keep(id, e);
    keep_storages();
    keep_sent(reference);
    return std::move(last_);
  }

private:
  void keep(PlannedId id, uint32_t until) {
    if (id.valid())
      last_[id.index] = std::max(last_[id.index], until);
  }

  ValueId root(ValueId value) const {
    while (program_.values[value].alias_of.valid())
      value = program_.values[value].alias_of;
    return value;
  }

  // `alias` asks for all names of its storage before it, and for what else they were made of.
  void keep_storages() {
    llvm::DenseMap<uint32_t, uint32_t> asked; // by root: the last execution that asks
    for (uint32_t e = 0; e < plan_.executions.size(); ++e)
      if (is_alias(program_, plan_.executions[e].inst))
        asked[root(program_.insts[plan_.executions[e].inst].first_result).index] = e;
    for (PlannedId id : plan_.params)
      if (id.valid())
        if (auto at = asked.find(plan_.values[id].value.index); at != asked.end())
          keep(id, at->second);
    for (const Execution &execution : plan_.executions)
      for (PlannedId result : plan_.list(execution.results)) {
        if (!result.valid() || !plan_.values[result].value.valid())
          continue;
        auto at = asked.find(root(plan_.values[result].value).index);
        if (at == asked.end())
          continue;
        keep(result, at->second);
        for (PlannedId operand : plan_.list(execution.operands))
          keep(operand, at->second);
      }
  }

  void keep_sent(Reference &reference) {
    llvm::DenseMap<uint32_t, uint32_t> asked; // by ValueId: the last execution that asks
    for (uint32_t e = 0; e < plan_.executions.size(); ++e)
      if (ValueId sent = value_received_by(program_, reference, plan_.executions[e]); sent.valid())
        asked[sent.index] = e;
    for (uint32_t i = 0; i < plan_.values.size(); ++i)
      if (auto at = asked.find(plan_.values[PlannedId{i}].value.index); at != asked.end())
        keep(PlannedId{i}, at->second);
  }

  const ir::Program &program_;
  const Plan &plan_;
  std::vector<uint32_t> last_;
};

} // namespace

std::vector<uint32_t> last_uses(const ir::Program &program, const Plan &plan,
                                Reference &reference) {
  return LastUses(program, plan).find(reference);
}

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

// Those with the smallest hashes: the same on all ranks.
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
