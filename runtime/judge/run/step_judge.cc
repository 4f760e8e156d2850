// The square of one step: ranks compute and then mean, the reference means and then computes.
#include "runtime/judge/run/step_judge.h"

#include "runtime/judge/last_uses.h"
#include "runtime/reference/run.h"

#include "ir/support/error.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

using ir::AxisSet;
using ir::ValueId;

void StepJudge::judge(const Execution &execution) {
  ++report_.judged;
  const Plan &plan = setup_.plan;
  const PlannedCall &call = plan.calls[execution.call];
  BodySite site{call.typing, call.path};
  llvm::ArrayRef<PlannedId> operands = plan.list(execution.operands),
                            results = plan.list(execution.results);
  Meaning nothing;
  std::vector<const Meaning *> meant;
  for (PlannedId id : operands) {
    const Meaning *own = values_.meaning(id);
    meant.push_back(own ? own : &nothing);
    if (own || !setup_.has_data(plan.values[id].known))
      continue;
    std::string reason = fmt::format("{}, an operand, was not read or has no meaning",
                                     ir::print_value(setup_.program, plan.values[id].value));
    for (PlannedId result : results)
      verdicts_.judge_value(result, {}, &reason);
    return;
  }
  llvm::Expected<Meanings> want =
      is_alias(setup_.program, execution.inst) ? content_of_storage(execution.inst, site)
      : value_received_by(setup_.program, reference_, execution).valid()
          ? received(execution)
          : ReferenceRun(reference_).run_inst(execution.inst, site, meant);
  if (!want) {
    std::string reason = llvm::toString(want.takeError());
    for (PlannedId id : results)
      verdicts_.judge_value(id, {}, &reason);
    return;
  }
  Wanted wanted(*want);
  find_bounds(execution, site, wanted);
  judge_results(execution, wanted);
}

bool StepJudge::is_call(const Execution &execution) {
  return reference_.resolve(setup_.program.insts[execution.inst].op).form == rules::OpForm::Call;
}

void StepJudge::judge_results(const Execution &execution, const Wanted &step) {
  const Plan &plan = setup_.plan;
  llvm::ArrayRef<PlannedId> operands = plan.list(execution.operands),
                            results = plan.list(execution.results);
  // What a body made was judged there, step by step; here it has passed the boundary.
  rules::Boundary body = reference_.resolve(setup_.program.insts[execution.inst].op).boundary;
  bool passed = is_call(execution) && !setup_.exact() && body != rules::Boundary::Cond &&
                body != rules::Boundary::While;
  for (unsigned r = 0; r < results.size(); ++r) {
    ReferenceValue wanted;
    if (!passed && r < step.meant.size() && !step.meant[r].pieces.empty())
      wanted.meant = &step.meant[r];
    wanted.exact = setup_.exact();
    if (r < step.bounds.size() && !step.bounds[r].pieces.empty())
      wanted.bound = &step.bounds[r];
    wanted.acted = step.acted;
    if (r < step.reductions.size())
      wanted.parts = step.reductions[r].parts;
    for (PlannedId id : operands)
      if (const Meaning *own = values_.meaning(id))
        wanted.earlier.push_back({ir::print_value(setup_.program, plan.values[id].value), own});
    bool blind = r < step.reductions.size() && step.reductions[r].axes && wanted.meant &&
                 (wanted.exact || wanted.bound) &&
                 is_blind(*wanted.meant, wanted.exact ? nullptr : wanted.bound, wanted.parts,
                          ranks_along(step.reductions[r].axes, plan.values[results[r]]));
    verdicts_.judge_value(results[r], wanted, nullptr, blind ? step.reductions[r].axes : AxisSet());
  }
}

llvm::Expected<Meanings> StepJudge::content_of_storage(ir::InstId alias, BodySite site) {
  auto known = [&](ValueId value) -> const Meaning * {
    PlannedId latest = values_.latest(value);
    return latest.valid() ? values_.meaning(latest) : nullptr;
  };
  llvm::Expected<Meaning> made = ReferenceRun(reference_).run_alias(alias, site, known);
  if (!made)
    return made.takeError();
  Meanings results;
  results.push_back(std::move(*made));
  return results;
}

llvm::Expected<Meanings> StepJudge::received(const Execution &execution) {
  ValueId sent = value_received_by(setup_.program, reference_, execution);
  PlannedId latest = values_.latest(sent);
  const Meaning *own = latest.valid() ? values_.meaning(latest) : nullptr;
  if (!own)
    return make_error("what was sent was not read, or has no meaning");
  llvm::Expected<Meaning> made = reference_.received(
      setup_.checked.known(sent),
      setup_.checked.known(setup_.program.insts[execution.inst].first_result), *own);
  if (!made)
    return made.takeError();
  Meanings results;
  results.push_back(std::move(*made));
  return results;
}

int64_t StepJudge::ranks_along(AxisSet axes, const PlannedValue &value) const {
  const ir::Program &program = setup_.program;
  return Grid(program.meshes[program.types[value.known.type].mesh()], axes).size();
}

void StepJudge::find_bounds(const Execution &execution, BodySite site, Wanted &step) {
  if (is_call(execution))
    return;
  auto seen = reference_.resolve_inst(execution.inst, site);
  if (!seen) {
    llvm::consumeError(seen.takeError());
    return;
  }
  step.acted = acted_axes(**seen);
  const Plan &plan = setup_.plan;
  llvm::SmallVector<llvm::ArrayRef<Tensor>, 6> operands, results;
  for (PlannedId id : plan.list(execution.operands))
    operands.push_back(values_.tensors(id));
  for (PlannedId id : plan.list(execution.results))
    results.push_back(values_.tensors(id));
  StepData data{operands, results};
  bool read = llvm::all_of(plan.list(execution.operands), [&](PlannedId id) {
    return values_.meaning(id) || !setup_.has_data(plan.values[id].known);
  });
  for (PlannedId id : plan.list(execution.results))
    read &= values_.meaning(id) != nullptr;
  if (!read)
    return;
  for (unsigned r = 0; r < results.size(); ++r)
    step.reductions.push_back(reduction_of(reference_, **seen, site, data, r));
  if (setup_.exact())
    return;
  llvm::Expected<Meanings> bounds = bounds_.of(**seen, execution.inst, site, data);
  if (bounds)
    step.bounds = std::move(*bounds);
  else
    report_.add_undecided(llvm::toString(bounds.takeError()));
}

} // namespace spmd::runtime
