// Bodies and their instructions.
#include "runtime/plan/planner/planner.h"

#include "runtime/plan/unused.h"

#include "rules/shards/remesh.h"

#include "ir/support/error.h"

#include <fmt/format.h>

namespace spmd::runtime {

using ir::InstId;
using ir::ValueId;

llvm::Error Planner::dispatch(PlanSite &site) {
  switch (site.op.form) {
  case rules::OpForm::Equation:
    return equations_.plan(site);
  case rules::OpForm::Transition:
    return transitions_.plan(site);
  case rules::OpForm::Boundary:
    return boundary_.plan(site);
  case rules::OpForm::Call:
    return control_flow_.plan(site);
  case rules::OpForm::Unknown:
    break;
  }
  return make_error(fmt::format("`{}` is no op that can be run: nothing says what it computes",
                                task_.program.op_name(site.inst.op).str()));
}

// An operand of another mesh over the same ranks is seen as the instruction sees it.
llvm::Error Planner::read_operands(PlanSite &site) {
  site.operands.read(task_.program, site.inst.operands);
  const ir::MeshId mesh = site.mesh(task_.program);
  for (ValueId value : site.operands.values) {
    llvm::Expected<PlannedId> found = values_.find(site.frame, value);
    if (!found)
      return found.takeError();
    site.values.push_back(*found);
    rules::TensorInfo arg = task_.plan.values[*found].known;
    if (arg.type.valid() && task_.program.types[arg.type].mesh() != mesh)
      arg.type = task_.program.types.add(
          rules::remesh(task_.program, ir::Type(task_.program.types[arg.type]), mesh, {}).type);
    site.args.push_back(arg);
  }
  for (unsigned r = 0; r < site.inst.result_count; ++r) {
    const ir::Value &value = task_.program.values[site.inst.result(r)];
    site.claims.push_back({value.shape, value.declared, value.global_shape});
  }
  return llvm::Error::success();
}

llvm::Error Planner::instruction(PlanFrame &frame, InstId id) {
  if (task_.plan.steps.size() > task_.options.max_steps)
    return make_error(
        fmt::format("the program unrolls to more than {} steps", task_.options.max_steps));
  const ir::Inst inst = task_.program.insts[id];
  PlanSite site{frame, id, inst, task_.rules.resolve(inst.op), {}, {}, {}, {}};
  if (is_unused(inst, site.op))
    return llvm::Error::success();
  if (llvm::Error error = read_operands(site))
    return error;
  Execution execution{id, frame.call};
  execution.steps.first = static_cast<uint32_t>(task_.plan.steps.size());
  execution.nested = builder_.is_nested();
  InstId outer = builder_.begin(id);
  llvm::Error error = dispatch(site);
  builder_.begin(outer);
  if (error && task_.options.failed && !task_.options.failed->valid())
    *task_.options.failed = id;
  if (error)
    return make_error(fmt::format("{} (op `{}`)", llvm::toString(std::move(error)),
                                  task_.program.op_name(inst.op).str()));
  execution.steps.last = static_cast<uint32_t>(task_.plan.steps.size());
  llvm::SmallVector<PlannedId, 2> results;
  for (unsigned r = 0; r < inst.result_count; ++r)
    if (auto made = frame.values.find(inst.result(r).index); made != frame.values.end()) {
      task_.plan.values[made->second].from = execution.steps.last;
      results.push_back(made->second);
    }
  execution.operands = builder_.members(site.values);
  execution.results = builder_.members(results);
  task_.plan.executions.push_back(execution);
  storage_.note(site);
  return llvm::Error::success();
}

llvm::Error Planner::body(PlanFrame &frame, const ir::Body &body) {
  for (uint32_t i = body.first.index; i < body.last.index; ++i)
    if (llvm::Error error = instruction(frame, InstId{i}))
      return error;
  return llvm::Error::success();
}

llvm::Error Planner::params(PlanFrame &frame) {
  for (const ir::Param &param : task_.program.params) {
    rules::TensorInfo known = task_.checked.known(param.value);
    std::string name = values_.who(frame, param.value);
    llvm::Expected<Placement> place = Placement::make(task_.program, task_.world, known, name);
    if (!place)
      return place.takeError();
    if (place->dtype() == ir::DType::Unknown)
      return make_error(fmt::format("the element type of {} is not known", name));
    llvm::Expected<RankDims> dims =
        builder_.map_dims(place->mesh(), [&](RankId rank) -> llvm::Expected<Dims> {
          return place->block(task_.world, rank).dims;
        });
    if (!dims)
      return dims.takeError();
    BufferId held = builder_.buffer(place->dtype(), place->mesh(), std::move(*dims));
    if (llvm::Error error = values_.define(frame, param.value, held))
      return error;
    task_.plan.params.push_back(frame.values[param.value.index]);
  }
  return llvm::Error::success();
}

llvm::Error Planner::run() {
  PlanFrame frame;
  task_.plan.calls.push_back({});
  if (llvm::Error error = params(frame))
    return error;
  if (llvm::Error error = body(frame, task_.program.main)) {
    if (task_.plan.unknown_sizes.empty())
      return error;
    llvm::consumeError(std::move(error)); // the plan of what comes before
    task_.plan.outputs.assign(task_.plan.unknown_sizes.begin(), task_.plan.unknown_sizes.end());
    return llvm::Error::success();
  }
  for (const ir::Output &output : task_.program.outputs) {
    llvm::Expected<PlannedId> value = values_.find(frame, output.value);
    if (!value)
      return value.takeError();
    task_.plan.outputs.push_back(*value);
  }
  return llvm::Error::success();
}

} // namespace spmd::runtime
