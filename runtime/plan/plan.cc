// Bodies become steps in program order. What a rank holds under a name is a buffer; values that are
// the same data under another type share one.
#include "ir/support/arrays.h"
#include "ir/support/error.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/row_dims.h"
#include "runtime/plan/unused.h"

#include "rules/shards/remesh.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"

#include <fmt/format.h>

namespace spmd::runtime {

using ir::InstId;
using ir::ValueId;

// --- buffers and values

BufferId Planner::buffer(ir::DType dtype, ir::MeshId mesh, RankDims dims) {
  Buffer made;
  made.dtype = dtype;
  made.mesh = mesh;
  llvm::ArrayRef<RankId> ranks = world_.ranks(mesh);
  if (dims.size() > 1 &&
      llvm::all_of(ranks, [&](RankId rank) { return dims[rank] == dims[ranks[0]]; }))
    dims = {Dims(dims[ranks[0]])};
  made.dims = std::move(dims);
  for (const Dims &each : made.dims)
    made.bytes = std::max(made.bytes, count(each) * static_cast<int64_t>(ir::info(dtype).bytes));
  return plan_.buffers.add(std::move(made));
}

llvm::Expected<RankDims>
Planner::map_dims(ir::MeshId mesh, llvm::function_ref<llvm::Expected<Dims>(RankId)> of) const {
  RankDims all(world_.size());
  for (RankId rank : world_.ranks(mesh)) {
    llvm::Expected<Dims> dims = of(rank);
    if (!dims)
      return dims.takeError();
    all[rank] = std::move(*dims);
  }
  return all;
}

CommunicatorId Planner::communicator(ir::MeshId mesh, llvm::ArrayRef<ir::AxisId> axes) {
  for (uint32_t i = 0; i < plan_.communicators.size(); ++i)
    if (const Communicator &each = plan_.communicators[CommunicatorId{i}];
        each.mesh == mesh && ir::as_array(each.axes) == axes)
      return CommunicatorId{i};
  groups_.push_back(world_.groups(mesh, axes));
  return plan_.communicators.add({mesh, {axes.begin(), axes.end()}});
}

const Groups &Planner::groups(CommunicatorId id) { return groups_[id.index]; }

Span Planner::uses(llvm::ArrayRef<Use> list) {
  Span span{static_cast<uint32_t>(plan_.uses.size()), static_cast<uint32_t>(list.size())};
  plan_.uses.insert(plan_.uses.end(), list.begin(), list.end());
  return span;
}

Span Planner::uses_of(llvm::ArrayRef<BufferId> list) {
  llvm::SmallVector<Use, 4> made;
  for (BufferId each : list)
    made.push_back({each, {}});
  return uses(made);
}

Span Planner::members(llvm::ArrayRef<PlannedId> list) {
  Span span{static_cast<uint32_t>(plan_.members.size()), static_cast<uint32_t>(list.size())};
  plan_.members.insert(plan_.members.end(), list.begin(), list.end());
  return span;
}

// A block of a whole, if the extents on all ranks are those that the type says; else what a rank
// holds is all there is.
PlacementId Planner::place_of(const rules::Arg &known, const Buffer &buffer) {
  auto [at, added] = known_placements_.try_emplace(
      {known.type.index, known.shape.index, known.sizes.index}, PlacementId());
  PlacementId &id = at->second;
  if (added && !program_.types[known.type].sharded().empty()) {
    llvm::Expected<Placement> made = Placement::make(program_, world_, known, "");
    if (made)
      id = plan_.placements.add(std::move(*made));
    else
      llvm::consumeError(made.takeError());
  }
  if (!id.valid())
    return id;
  const Placement &place = plan_.placements[id];
  for (RankId rank : world_.ranks(place.mesh()))
    if (!world_.on(buffer.mesh, rank) || place.block(world_, rank).dims != buffer.on(rank))
      return {};
  return id;
}

std::string Planner::who(const Frame &frame, ValueId value) const {
  std::string name = ir::print(program_.values[value].name, program_.strings);
  if (frame.call == 0)
    return fmt::format("`{}`", name);
  const PlannedCall &call = plan_.calls[frame.call];
  const ir::Inst &site = program_.insts[call.site];
  return fmt::format("`{}` in a body of `{}`", name, program_.op_name(site.op).str());
}

llvm::Expected<PlannedId> Planner::find(Frame &frame, ValueId value) {
  auto found = frame.values.find(value.index);
  if (found == frame.values.end())
    return make_error(fmt::format("{} has no data here", who(frame, value)));
  return found->second;
}

llvm::Error Planner::define(Frame &frame, ValueId value, BufferId buffer) {
  if (llvm::any_of(plan_.buffers[buffer].dims,
                   [](const Dims &dims) { return count(dims) >= kTooManyElements; }))
    return make_error(fmt::format("{} has more elements than can be counted", who(frame, value)));
  PlannedValue made;
  made.value = value;
  made.call = frame.call;
  made.known = checked_.known(value, frame.typing);
  made.buffer = buffer;
  made.from = static_cast<uint32_t>(plan_.steps.size());
  if (made.known.type.valid() && made.known.shape.valid())
    made.place = place_of(made.known, plan_.buffers[buffer]);
  frame.values[value.index] = plan_.values.add(std::move(made));
  return llvm::Error::success();
}

// --- steps

void Planner::step(StepForm form, size_t index, ir::MeshId mesh) {
  plan_.steps.push_back({form, static_cast<uint32_t>(index), mesh, inst_});
}

void Planner::local_step(LocalStep local, ir::MeshId mesh) {
  plan_.local_steps.push_back(std::move(local));
  step(StepForm::LocalStep, plan_.local_steps.size() - 1, mesh);
}

BufferId Planner::communicate(const Communicate &made, ir::MeshId mesh) {
  plan_.communicators[made.group].used = true;
  plan_.communicates.push_back(made);
  step(StepForm::Communicate, plan_.communicates.size() - 1, mesh);
  return made.result;
}

BufferId Planner::copy(BufferId from, RankDims dims) {
  BufferId to = buffer_like(from, std::move(dims));
  copy_into(from, to);
  return to;
}

void Planner::copy_into(BufferId from, BufferId to) {
  LocalStep made{LocalStepForm::Copy};
  made.operands = uses_of(from);
  made.result = to;
  local_step(std::move(made), plan_.buffers[to].mesh);
}

// --- ops of the table

// An operand of another mesh over the same ranks, as the instruction sees it.
ir::Type Planner::seen_from(ir::TypeId type, ir::MeshId mesh) {
  return rules::remesh(program_, ir::Type(program_.types[type]), mesh, {}).type;
}

rules::Application Planner::application(Site &site) {
  return {program_,  site.op,    site.inst.attrs, site.inst.context, site.operands.slots,
          site.args, site.claims};
}

static bool is_stated(const ir::Shape &shape) {
  return shape.ranked && llvm::all_of(shape.dims, [](ir::Extent e) { return e.is_number(); });
}

// The type says how blocks are cut, unless an operand is not cut as its type says: then extents are
// inferred from those of the operands.
llvm::Expected<RankDims> Planner::result_dims(Site &site, llvm::ArrayRef<PlannedId> values,
                                              unsigned result) {
  rules::Arg known = checked_.known(site.inst.result(result), site.frame.typing);
  std::string name = who(site.frame, site.inst.result(result));
  ir::MeshId mesh = site.mesh(program_);
  bool regular =
      known.shape.valid() && known.type.valid() && is_stated(program_.shapes[known.shape]);
  bool even = true;
  for (PlannedId value : values) {
    const PlannedValue &operand = plan_.values[value];
    const Buffer &buffer = plan_.buffers[operand.buffer];
    regular &= operand.place.valid() || buffer.dims.size() == 1;
    even &= buffer.dims.size() == 1;
  }
  if (regular) {
    llvm::Expected<Placement> place = Placement::make(program_, world_, known, name);
    if (!place)
      return place.takeError();
    if (place->even() && even)
      return RankDims{place->block(world_, world_.ranks(place->mesh())[0]).dims};
    if (!place->even())
      return map_dims(place->mesh(), [&](RankId rank) -> llvm::Expected<Dims> {
        return place->block(world_, rank).dims;
      });
  }
  // Ranks whose operands have equal extents have equal results.
  llvm::SmallVector<std::pair<RankId, Dims>, 4> classes;
  return map_dims(mesh, [&](RankId rank) -> llvm::Expected<Dims> {
    for (const auto &each : classes)
      if (llvm::all_of(values, [&](PlannedId value) {
            const Buffer &buffer = plan_.buffers[plan_.values[value].buffer];
            return buffer.on(rank) == buffer.on(each.first);
          }))
        return each.second;
    llvm::Expected<Dims> dims = inferred_dims(site, values, result, rank);
    if (dims)
      classes.push_back({rank, *dims});
    return dims;
  });
}

// By shapes alone; or as the type says, where the rank that it speaks of has such operands.
llvm::Expected<Dims> Planner::inferred_dims(Site &site, llvm::ArrayRef<PlannedId> values,
                                            unsigned result, RankId rank) {
  llvm::SmallVector<TensorForm, 4> forms;
  for (PlannedId value : values) {
    const Buffer &buffer = plan_.buffers[plan_.values[value].buffer];
    forms.push_back({buffer.dtype, buffer.on(rank)});
  }
  if (std::optional<Dims> dims = row_dims(program_, application(site), forms, result))
    return std::move(*dims);
  rules::Arg known = checked_.known(site.inst.result(result), site.frame.typing);
  std::string name = who(site.frame, site.inst.result(result));
  bool first = llvm::all_of(values, [&](PlannedId value) {
    const PlannedValue &operand = plan_.values[value];
    llvm::Expected<Dims> stated = dims_of(program_, operand.known.shape, name);
    if (!stated)
      llvm::consumeError(stated.takeError());
    return stated && *stated == plan_.buffers[operand.buffer].on(rank);
  });
  if (first && known.shape.valid())
    return dims_of(program_, known.shape, name);
  return make_error(fmt::format("the extents of {} on rank {} do not follow: state them", name,
                                world_.number(rank)));
}

llvm::Expected<llvm::SmallVector<BufferId, 2>>
Planner::compute(Site &site, llvm::ArrayRef<PlannedId> values, ir::DType dtype) {
  Compute made;
  made.op = site.inst.op;
  made.attrs = site.inst.attrs;
  made.slots = {static_cast<uint32_t>(plan_.slots.size()),
                static_cast<uint32_t>(site.operands.slots.size())};
  plan_.slots.insert(plan_.slots.end(), site.operands.slots.begin(), site.operands.slots.end());
  made.call = site.frame.call;
  made.inst = drawn_by(program_, site.id);
  llvm::SmallVector<Use, 4> args, results;
  for (PlannedId value : values)
    args.push_back({plan_.values[value].buffer, plan_.values[value].place});
  llvm::SmallVector<BufferId, 2> buffers;
  ir::MeshId mesh = site.mesh(program_);
  for (unsigned r = 0; r < site.inst.result_count; ++r) {
    rules::Arg known = checked_.known(site.inst.result(r), site.frame.typing);
    llvm::Expected<RankDims> dims = result_dims(site, values, r);
    if (!dims)
      return dims.takeError();
    ir::DType own = dtype == ir::DType::Unknown ? dtype_of(known) : dtype;
    if (own == ir::DType::Unknown)
      return make_error(
          fmt::format("the element type of {} is not known", who(site.frame, site.inst.result(r))));
    buffers.push_back(buffer(own, mesh, std::move(*dims)));
    results.push_back({buffers.back(), place_of(known, plan_.buffers[buffers.back()])});
    if (r == 0 && known.type.valid() && program_.types[known.type].mesh() == mesh)
      for (ir::AxisId axis : per_rank_axes(program_.types[known.type]))
        made.own_draws.push_back(axis);
  }
  made.operands = uses(args);
  made.results = uses(results);
  plan_.computes.push_back(std::move(made));
  step(StepForm::Compute, plan_.computes.size() - 1, mesh);
  return buffers;
}

BufferId Planner::op(llvm::StringRef name, llvm::ArrayRef<rules::Slot> slots,
                     llvm::ArrayRef<BufferId> operands, ir::DType dtype, RankDims dims) {
  Compute made;
  made.op = ir::OpNameId{program_.strings.add(name).index};
  made.attrs = program_.no_attrs();
  made.slots = {static_cast<uint32_t>(plan_.slots.size()), static_cast<uint32_t>(slots.size())};
  plan_.slots.insert(plan_.slots.end(), slots.begin(), slots.end());
  ir::MeshId mesh = plan_.buffers[operands[0]].mesh;
  BufferId result = buffer(dtype, mesh, std::move(dims));
  made.operands = uses_of(operands);
  made.results = uses_of(result);
  plan_.computes.push_back(std::move(made));
  step(StepForm::Compute, plan_.computes.size() - 1, mesh);
  return result;
}

BufferId Planner::op(llvm::StringRef name, llvm::ArrayRef<BufferId> operands, ir::DType dtype,
                     RankDims dims) {
  llvm::SmallVector<rules::Slot, 2> slots;
  for (uint32_t i = 0; i < operands.size(); ++i)
    slots.push_back({rules::Slot::Form::Tensor, i, 1, {}, {}});
  return op(name, slots, operands, dtype, std::move(dims));
}

llvm::Error Planner::equation(Site &site) {
  llvm::Expected<llvm::SmallVector<BufferId, 2>> made = compute(site, site.values);
  if (!made)
    return made.takeError();
  for (unsigned r = 0; r < made->size(); ++r)
    if (llvm::Error error = define_result(site, r, (*made)[r]))
      return error;
  return llvm::Error::success();
}

// --- bodies

llvm::Error Planner::dispatch(Site &site) {
  switch (site.op.form) {
  case rules::OpForm::Equation:
    return equation(site);
  case rules::OpForm::Transition:
    return transition(site);
  case rules::OpForm::Boundary:
    return boundary(site);
  case rules::OpForm::Call:
    return call(site);
  case rules::OpForm::Unknown:
    break;
  }
  return make_error(fmt::format("`{}` is no op that can be run: nothing says what it computes",
                                program_.op_name(site.inst.op).str()));
}

llvm::Error Planner::instruction(Frame &frame, InstId id) {
  if (plan_.steps.size() > options_.max_steps)
    return make_error(fmt::format("the program unrolls to more than {} steps", options_.max_steps));
  const ir::Inst inst = program_.insts[id];
  Site site{frame, id, inst, rules_.resolve(inst.op), {}, {}, {}, {}};
  if (is_unused(inst, site.op))
    return llvm::Error::success();
  site.operands.read(program_, inst.operands);
  for (ValueId value : site.operands.values) {
    llvm::Expected<PlannedId> found = find(frame, value);
    if (!found)
      return found.takeError();
    site.values.push_back(*found);
    rules::Arg arg = plan_.values[*found].known;
    if (ir::MeshId mesh = site.mesh(program_);
        arg.type.valid() && program_.types[arg.type].mesh() != mesh)
      arg.type = program_.types.add(seen_from(arg.type, mesh));
    site.args.push_back(arg);
  }
  for (unsigned r = 0; r < inst.result_count; ++r) {
    const ir::Value &value = program_.values[inst.result(r)];
    site.claims.push_back({value.shape, value.declared, value.global_shape});
  }
  Execution execution{id, frame.call};
  execution.steps.first = static_cast<uint32_t>(plan_.steps.size());
  execution.nested = dynamic_ > 0;
  InstId outer = std::exchange(inst_, id);
  llvm::Error error = dispatch(site);
  inst_ = outer;
  if (error && options_.failed && !options_.failed->valid())
    *options_.failed = id;
  if (error)
    return make_error(fmt::format("{} (op `{}`)", llvm::toString(std::move(error)),
                                  program_.op_name(inst.op).str()));
  execution.steps.last = static_cast<uint32_t>(plan_.steps.size());
  llvm::SmallVector<PlannedId, 2> results;
  for (unsigned r = 0; r < inst.result_count; ++r)
    if (auto made = frame.values.find(inst.result(r).index); made != frame.values.end()) {
      plan_.values[made->second].from = execution.steps.last;
      results.push_back(made->second);
    }
  execution.operands = members(site.values);
  execution.results = members(results);
  plan_.executions.push_back(execution);
  return aliases(site);
}

llvm::Error Planner::body(Frame &frame, const ir::Body &body) {
  for (uint32_t i = body.first.index; i < body.last.index; ++i)
    if (llvm::Error error = instruction(frame, InstId{i}))
      return error;
  return llvm::Error::success();
}

llvm::Error Planner::params(Frame &frame) {
  for (const ir::Param &param : program_.params) {
    rules::Arg known = checked_.known(param.value);
    std::string name = who(frame, param.value);
    llvm::Expected<Placement> place = Placement::make(program_, world_, known, name);
    if (!place)
      return place.takeError();
    if (place->dtype() == ir::DType::Unknown)
      return make_error(fmt::format("the element type of {} is not known", name));
    llvm::Expected<RankDims> dims =
        map_dims(place->mesh(), [&](RankId rank) -> llvm::Expected<Dims> {
          return place->block(world_, rank).dims;
        });
    if (!dims)
      return dims.takeError();
    BufferId held = buffer(place->dtype(), place->mesh(), std::move(*dims));
    if (llvm::Error error = define(frame, param.value, held))
      return error;
    plan_.params.push_back(frame.values[param.value.index]);
  }
  return llvm::Error::success();
}

llvm::Error Planner::run() {
  Frame frame;
  plan_.calls.push_back({});
  if (llvm::Error error = params(frame))
    return error;
  if (llvm::Error error = body(frame, program_.main)) {
    if (plan_.unknown_sizes.empty())
      return error;
    llvm::consumeError(std::move(error)); // the plan of what comes before
    plan_.outputs.assign(plan_.unknown_sizes.begin(), plan_.unknown_sizes.end());
    return llvm::Error::success();
  }
  for (const ir::Output &output : program_.outputs) {
    llvm::Expected<PlannedId> value = find(frame, output.value);
    if (!value)
      return value.takeError();
    plan_.outputs.push_back(*value);
  }
  return llvm::Error::success();
}

char TooManyRounds::ID = 0;
void TooManyRounds::log(llvm::raw_ostream &out) const {
  out << "a loop goes on after " << rounds << " rounds";
}

llvm::Expected<Plan> make_plan(checker::CheckedProgram &program, const World &world,
                               const PlanOptions &options) {
  Plan plan;
  plan.max_rounds = options.max_rounds;
  if (llvm::Error error = Planner(program, world, options, plan).run())
    return error;
  plan_memory(program.program(), plan);
  plan.fingerprint = fingerprint(program.program(), plan);
  return plan;
}

} // namespace spmd::runtime
