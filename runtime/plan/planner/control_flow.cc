// Calls, scans, branches and loops.
#include "runtime/plan/planner/control_flow.h"

#include "runtime/plan/planner/planner.h"

#include "ir/support/arrays.h"
#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

// A function that has a body.
llvm::Expected<ir::FunctionId> ControlFlowPlanner::region(PlanSite &site, llvm::StringRef role) {
  const ir::AttrValue *attr = program_.find(site.inst.attrs, role);
  if (!attr || attr->form != ir::AttrForm::Function)
    return make_error(fmt::format("`{}` is no function", role.str()));
  ir::FunctionId id = attr->as<ir::FunctionId>();
  if (program_.functions[id].opaque)
    return make_error(fmt::format("`{}` is opaque: the program does not say what it computes",
                                  program_.strings[program_.functions[id].name].str()));
  return id;
}

PlanFrame ControlFlowPlanner::enter(PlanSite &site, uint32_t typing, uint64_t round, bool looped) {
  PlanFrame frame;
  frame.call = static_cast<uint32_t>(plan_.calls.size());
  frame.typing = typing;
  const PlannedCall &caller = plan_.calls[site.frame.call];
  PlannedCall made;
  made.caller = site.frame.call;
  made.site = site.id;
  made.typing = typing;
  made.path = body_path(caller.path, site.id, round);
  made.looped = looped;
  made.round = round;
  plan_.calls.push_back(made);
  return frame;
}

llvm::Error ControlFlowPlanner::bind(PlanFrame &frame, ir::FunctionId function,
                                     llvm::ArrayRef<BufferId> args) {
  for (size_t i = 0; i < args.size(); ++i)
    if (llvm::Error error =
            values_.define(frame, program_.functions[function].params[i].value, args[i]))
      return error;
  return llvm::Error::success();
}

llvm::Expected<llvm::SmallVector<BufferId, 4>>
ControlFlowPlanner::run_body(PlanFrame &frame, ir::FunctionId id, llvm::ArrayRef<BufferId> args) {
  if (llvm::Error error = bind(frame, id, args))
    return error;
  const ir::Body steps = program_.functions[id].body;
  const ir::OperandsId returned = program_.functions[id].results;
  if (llvm::Error error = bodies_.body(frame, steps))
    return error;
  llvm::SmallVector<BufferId, 4> results;
  for (const ir::Operand &operand : program_.operand_lists[returned]) {
    if (!operand.is_value())
      return make_error(fmt::format("`{}` returns a plain number, which no rank holds",
                                    program_.strings[program_.functions[id].name].str()));
    llvm::Expected<PlannedId> value = values_.find(frame, operand.as_value());
    if (!value)
      return value.takeError();
    results.push_back(plan_.values[*value].buffer);
  }
  return results;
}

llvm::Error ControlFlowPlanner::plan(PlanSite &site) {
  if (site.op.boundary == rules::Boundary::Cond)
    return branch(site);
  if (site.op.boundary == rules::Boundary::Scan)
    return scan(site);
  if (site.op.boundary == rules::Boundary::While)
    return loop(site);
  return call(site);
}

llvm::Error ControlFlowPlanner::call(PlanSite &site) {
  llvm::Expected<ir::FunctionId> function = region(site, "body");
  if (!function)
    return function.takeError();
  llvm::ArrayRef<uint32_t> body_instances = checked_.bodies(site.id, site.frame.typing);
  SPMD_CHECK(body_instances.size() == 1, "a body that was not typed");
  PlanFrame frame = enter(site, body_instances[0], 0, false);
  llvm::Expected<llvm::SmallVector<BufferId, 4>> results =
      run_body(frame, *function, site.buffers(plan_));
  if (!results)
    return results.takeError();
  return values_.define_results(site, *results);
}

// One entry of dimension 0 of a scanned operand.
BufferId ControlFlowPlanner::row_of(BufferId whole, int64_t row) {
  RankDims dims = builder_.dims_of_buffer(whole);
  for (Dims &each : dims)
    if (!each.empty())
      each.erase(each.begin());
  LocalStep made{LocalStepForm::TakeRow};
  made.operands = builder_.uses_of(whole);
  made.result = builder_.buffer_like(whole, std::move(dims));
  made.row = static_cast<uint32_t>(row);
  BufferId result = made.result;
  builder_.local_step(std::move(made), plan_.buffers[whole].mesh);
  return result;
}

llvm::Expected<int64_t> ControlFlowPlanner::trip_count(PlanSite &site,
                                                       llvm::ArrayRef<BufferId> scanned) {
  if (const ir::AttrValue *length = program_.find(site.inst.attrs, "length");
      length && length->form == ir::AttrForm::Integer)
    return length->as_integer();
  std::optional<int64_t> rounds;
  for (BufferId each : scanned)
    for (RankId rank : world_.ranks(plan_.buffers[each].mesh)) {
      const Dims &dims = plan_.buffers[each].on(rank);
      if (dims.empty() || (rounds && *rounds != dims[0]))
        return make_error("what is scanned is not of one length on all ranks");
      rounds = dims[0];
    }
  if (!rounds)
    return make_error("how often a scan runs is not known");
  return *rounds;
}

// What the rounds gave, one behind the other.
llvm::Expected<BufferId> ControlFlowPlanner::stack_rows(PlanSite &site, unsigned result,
                                                        llvm::ArrayRef<BufferId> rows) {
  LocalStep made{LocalStepForm::StackRows};
  if (rows.empty()) {
    rules::TensorInfo known = checked_.known(site.inst.result(result), site.frame.typing);
    llvm::Expected<Dims> dims =
        dims_of(program_, known.shape, values_.who(site.frame, site.inst.result(result)));
    if (!dims)
      return dims.takeError();
    made.form = LocalStepForm::Zero;
    made.result = builder_.buffer(builder_.dtype_of(known), site.mesh(program_), {*dims});
  } else {
    RankDims dims = builder_.dims_of_buffer(rows[0]);
    for (BufferId row : rows)
      if (plan_.buffers[row].dims != dims)
        return make_error("the rounds of a scan give tensors of different extents");
    for (Dims &each : dims)
      each.insert(each.begin(), static_cast<int64_t>(rows.size()));
    made.operands = builder_.uses_of(rows);
    made.result = builder_.buffer_like(rows[0], std::move(dims));
  }
  BufferId stacked = made.result;
  builder_.local_step(std::move(made), plan_.buffers[stacked].mesh);
  return stacked;
}

// Constants, carries, then what is taken apart; carries, then what is stacked.
llvm::Error ControlFlowPlanner::scan(PlanSite &site) {
  llvm::Expected<ir::FunctionId> function = region(site, "body");
  if (!function)
    return function.takeError();
  size_t consts = static_cast<size_t>(site.integer(program_, "consts"));
  size_t carries = static_cast<size_t>(site.integer(program_, "carry"));
  const ir::AttrValue *attr = program_.find(site.inst.attrs, "reverse");
  bool reverse = attr && attr->form == ir::AttrForm::Bool && attr->as_bool();
  llvm::SmallVector<BufferId, 4> operands = site.buffers(plan_);
  llvm::ArrayRef<BufferId> scanned = ir::as_array(operands).drop_front(consts + carries);
  llvm::Expected<int64_t> rounds = trip_count(site, scanned);
  if (!rounds)
    return rounds.takeError();
  llvm::ArrayRef<uint32_t> body_instances = checked_.bodies(site.id, site.frame.typing);
  SPMD_CHECK(body_instances.size() == 1, "a body that was not typed");
  uint32_t typing = body_instances[0];
  llvm::SmallVector<BufferId, 4> carried(operands.begin() + static_cast<ptrdiff_t>(consts),
                                         operands.begin() +
                                             static_cast<ptrdiff_t>(consts + carries));
  std::vector<llvm::SmallVector<BufferId, 8>> rows(site.inst.result_count - carries);
  for (int64_t i = 0; i < *rounds; ++i) {
    int64_t row = reverse ? *rounds - 1 - i : i;
    llvm::SmallVector<BufferId, 4> args(operands.begin(),
                                        operands.begin() + static_cast<ptrdiff_t>(consts));
    args.append(carried.begin(), carried.end());
    for (BufferId each : scanned)
      args.push_back(row_of(each, row));
    PlanFrame frame = enter(site, typing, static_cast<uint64_t>(i), false);
    llvm::Expected<llvm::SmallVector<BufferId, 4>> results = run_body(frame, *function, args);
    if (!results)
      return results.takeError();
    std::copy_n(results->begin(), carries, carried.begin());
    for (size_t r = 0; r < rows.size(); ++r)
      rows[r].push_back((*results)[carries + r]);
  }
  llvm::SmallVector<BufferId, 4> results = carried;
  for (unsigned r = 0; r < rows.size(); ++r) {
    if (reverse)
      std::reverse(rows[r].begin(), rows[r].end());
    llvm::Expected<BufferId> stacked =
        stack_rows(site, static_cast<unsigned>(carries) + r, rows[r]);
    if (!stacked)
      return stacked.takeError();
    results.push_back(*stacked);
  }
  return values_.define_results(site, results);
}

// Both ways end in the same buffers.
llvm::Error ControlFlowPlanner::branch(PlanSite &site) {
  llvm::Expected<ir::FunctionId> then = region(site, "then");
  if (!then)
    return then.takeError();
  llvm::Expected<ir::FunctionId> other = region(site, "else");
  if (!other)
    return other.takeError();
  llvm::ArrayRef<uint32_t> body_instances = checked_.bodies(site.id, site.frame.typing);
  SPMD_CHECK(body_instances.size() == 2, "a body that was not typed");
  ir::MeshId mesh = site.mesh(program_);
  size_t at = plan_.branches.size();
  plan_.branches.push_back({plan_.values[site.values[0]].buffer});
  builder_.step(StepForm::Branch, at, mesh);
  builder_.enter_nest();
  llvm::SmallVector<BufferId, 4> results;
  for (unsigned way = 0; way < 2; ++way) {
    PlanFrame frame = enter(site, body_instances[way], way, false);
    llvm::Expected<llvm::SmallVector<BufferId, 4>> made =
        run_body(frame, way ? *other : *then, site.buffers(plan_, 1));
    if (!made)
      return made.takeError();
    for (size_t r = 0; r < made->size(); ++r) {
      BufferId from = (*made)[r];
      if (way == 0)
        results.push_back(builder_.copy(from));
      else if (plan_.buffers[from].dims == plan_.buffers[results[r]].dims)
        builder_.copy_into(from, results[r]);
      else
        return make_error(fmt::format("the two ways of result {} have different extents", r));
    }
    (way ? plan_.branches[at].else_end : plan_.branches[at].then_end) =
        static_cast<uint32_t>(plan_.steps.size());
  }
  builder_.leave_nest();
  return values_.define_results(site, results);
}

// Carries keep their buffers from round to round.
llvm::Error ControlFlowPlanner::loop(PlanSite &site) {
  llvm::Expected<ir::FunctionId> more = region(site, "cond");
  if (!more)
    return more.takeError();
  llvm::Expected<ir::FunctionId> function = region(site, "body");
  if (!function)
    return function.takeError();
  llvm::ArrayRef<uint32_t> body_instances = checked_.bodies(site.id, site.frame.typing);
  SPMD_CHECK(body_instances.size() == 2, "a body that was not typed");
  size_t consts = static_cast<size_t>(site.integer(program_, "consts"));
  llvm::SmallVector<BufferId, 4> args = site.buffers(plan_);
  for (size_t i = consts; i < args.size(); ++i)
    args[i] = builder_.copy(args[i]);
  ir::MeshId mesh = site.mesh(program_);
  size_t at = plan_.loops.size();
  plan_.loops.push_back({});
  builder_.step(StepForm::Loop, at, mesh);
  builder_.enter_nest();
  PlanFrame asking = enter(site, body_instances[0], 0, true);
  llvm::Expected<llvm::SmallVector<BufferId, 4>> predicate = run_body(asking, *more, args);
  if (!predicate)
    return predicate.takeError();
  plan_.loops[at].predicate = (*predicate)[0];
  plan_.loops[at].cond_end = static_cast<uint32_t>(plan_.steps.size());
  PlanFrame turn = enter(site, body_instances[1], 0, true);
  llvm::Expected<llvm::SmallVector<BufferId, 4>> results = run_body(turn, *function, args);
  if (!results)
    return results.takeError();
  llvm::MutableArrayRef<BufferId> carries =
      llvm::MutableArrayRef<BufferId>(args).drop_front(consts);
  // A carry that becomes another one would be read after it was replaced.
  for (size_t i = 0; i < carries.size(); ++i) {
    BufferId &result = (*results)[i];
    if (plan_.buffers[result].dims != plan_.buffers[carries[i]].dims)
      return make_error(fmt::format("carry {} changes its extents", i));
    if (result != carries[i] && llvm::is_contained(carries, result))
      result = builder_.copy(result);
  }
  for (size_t i = 0; i < carries.size(); ++i)
    if ((*results)[i] != carries[i])
      builder_.copy_into((*results)[i], carries[i]);
  plan_.loops[at].body_end = static_cast<uint32_t>(plan_.steps.size());
  builder_.leave_nest();
  return values_.define_results(site, carries);
}

} // namespace spmd::runtime
