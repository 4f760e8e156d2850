// Boundary ops: most are the same data under another type. And names of storage: what an in-place
// op wrote through a view is seen through the other views.
#include "runtime/plan/planner.h"

#include "rules/transitions/axes.h"

#include "ir/claims.h"
#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <fmt/format.h>

namespace spmd::runtime {

using ir::InstId;
using ir::ValueId;

namespace {

rules::Slot tensor_slot(uint32_t place) { return {rules::Slot::Form::Tensor, place, 1, {}, {}}; }
rules::Slot number_slot(double number) {
  return {rules::Slot::Form::Literal, 0, 0, ir::AttrValue::number(number), {}};
}

} // namespace

llvm::Error Planner::boundary(Site &site) {
  auto give = [&](size_t operand) {
    return site.inst.result_count
               ? define_result(site, 0, plan_.values[site.values[operand]].buffer)
               : llvm::Error::success();
  };
  using enum rules::Boundary;
  if (rules::is_same_data(site.op.boundary))
    return give(0);
  const std::string_view name = rules::boundary_name(site.op.boundary);
  switch (site.op.boundary) {
  case Store:
    return give(1);
  case AxisIndex:
    return axis_index(site);
  case Scale:
    return rescale(site);
  case Rng:
  case Fork:
  case Token:
    return random_state(site);
  case Send:
    return send_on(site);
  case Recv:
    return recv(site);
  case TotalNorm:
    return norm(site, false);
  case ClipNorm:
    return norm(site, true);
  case Alias:
    return realias(site);
  case Backward:
  case Grad:
    return make_error(
        fmt::format("`{}` is carried out by the backward program: derive it, and run that", name));
  case Step:
    return step_of(site);
  default:
    return make_error(fmt::format("`{}` cannot be run", name));
  }
}

// The optimizer is no part of the program: what it reads must be right.
llvm::Error Planner::step_of(Site &site) {
  if (site.inst.result_count > 0)
    return make_error("what the optimizer makes of a parameter is not in the program: only what "
                      "`step` reads can be checked");
  if (site.frame.call == 0 && site.values.size() > 1)
    plan_.optimizer_inputs.push_back({site.values[1], site.operands.values[0]});
  return llvm::Error::success();
}

llvm::Expected<llvm::SmallVector<ir::AxisId, 4>> call_axes(const rules::Application &app) {
  rules::Outcome out;
  std::optional<rules::CallAxes> axes = rules::resolve_axes(app, {}, out);
  if (!axes)
    return make_error("the call does not say along which axes it runs");
  llvm::SmallVector<ir::AxisId, 4> order;
  for (const rules::WrittenAxis &written : axes->written)
    order.append(written.axes.begin(), written.axes.end());
  return order;
}

llvm::Error Planner::axis_index(Site &site) {
  llvm::Expected<llvm::SmallVector<ir::AxisId, 4>> axes = call_axes(application(site));
  if (!axes)
    return axes.takeError();
  rules::Arg known = checked_.known(site.inst.result(0), site.frame.typing);
  llvm::Expected<Dims> dims = dims_of(program_, known.shape, who(site.frame, site.inst.result(0)));
  if (!dims)
    return dims.takeError();
  ir::MeshId mesh = site.mesh(program_);
  LocalStep made{LocalStepForm::Coordinate};
  made.group = communicator(mesh, *axes);
  made.result = buffer(dtype_of(known), mesh, {*dims});
  BufferId result = made.result;
  local_step(std::move(made), mesh);
  return define_result(site, 0, result);
}

// The value of a scale as a fraction: sizes of axes, as the mesh has them.
llvm::Expected<std::pair<double, double>> Planner::factor(Site &site, ir::ScaleId by) {
  const ir::Scale scale = program_.scales[by];
  std::pair<double, double> value(scale.numerator, scale.denominator);
  for (const ir::ScaleFactor &each : scale.factors) {
    ir::MeshId mesh = site.mesh(program_);
    std::optional<ir::AxisId> axis = ir::named_in(program_, program_.meshes[mesh], each.base);
    for (uint16_t m = 0; !axis && m < program_.meshes.size(); ++m)
      if ((axis = ir::named_in(program_, program_.meshes[ir::MeshId{m}], each.base)))
        mesh = ir::MeshId{m};
    if (!axis)
      return make_error(fmt::format("the symbol `{}` in a scale has no value",
                                    program_.strings[each.base].str()));
    double power =
        std::pow(static_cast<double>(world_.axis_size(mesh, *axis)), std::abs(each.exponent));
    (each.exponent > 0 ? value.first : value.second) *= power;
  }
  return value;
}

llvm::Error Planner::rescale(Site &site) {
  const ir::AttrValue *by = program_.find(site.inst.attrs, "by");
  if (!by || by->form != ir::AttrForm::Scale)
    return make_error("`by` is no scale");
  llvm::Expected<std::pair<double, double>> number = factor(site, by->as<ir::ScaleId>());
  if (!number)
    return number.takeError();
  LocalStep made{LocalStepForm::Scale};
  BufferId from = plan_.values[site.values[0]].buffer;
  made.operands = uses_of(from);
  made.result = buffer_like(from, dims_of_buffer(from));
  made.factor = number->first;
  made.divisor = number->second;
  BufferId result = made.result;
  local_step(std::move(made), plan_.buffers[from].mesh);
  return define_result(site, 0, result);
}

// Random numbers are a hash of where they are drawn, and of the entries of a state that is data:
// one that is made here has none.
llvm::Error Planner::random_state(Site &site) {
  rules::Arg known = checked_.known(site.inst.result(0), site.frame.typing);
  Dims dims = {0};
  if (known.shape.valid()) {
    llvm::Expected<Dims> stated =
        dims_of(program_, known.shape, who(site.frame, site.inst.result(0)));
    if (!stated)
      return stated.takeError();
    dims = *stated;
  }
  ir::DType dtype = dtype_of(known);
  ir::MeshId mesh = site.mesh(program_);
  LocalStep made{LocalStepForm::Zero};
  made.result = buffer(dtype == ir::DType::Unknown ? ir::DType::I64 : dtype, mesh, {dims});
  BufferId result = made.result;
  local_step(std::move(made), mesh);
  return define_result(site, 0, result);
}

// On to the next coordinate of the axis; without one, to a peer that receives it.
llvm::Error Planner::send_on(Site &site) {
  BufferId from = plan_.values[site.values[0]].buffer;
  if (!program_.find(site.inst.attrs, "axis") && !program_.find(site.inst.attrs, "group")) {
    sent_[static_cast<uint32_t>(integer(site, "tag"))].push_back(site.values[0]);
    return site.inst.result_count ? define_result(site, 0, from) : llvm::Error::success();
  }
  llvm::Expected<llvm::SmallVector<ir::AxisId, 4>> axes = call_axes(application(site));
  if (!axes)
    return axes.takeError();
  CommunicatorId id = communicator(site.mesh(program_), *axes);
  size_t size = groups(id).size();
  if (size > 1) {
    Communicate made{rules::Collective::Permute};
    made.group = id;
    made.operand = from;
    made.result = buffer_like(from, dims_of_buffer(from));
    made.dtype = plan_.buffers[from].dtype;
    made.perm = {static_cast<uint32_t>(plan_.numbers.size()), static_cast<uint32_t>(2 * size)};
    for (size_t i = 0; i < size; ++i) {
      plan_.numbers.push_back(static_cast<int64_t>(i));
      plan_.numbers.push_back(static_cast<int64_t>((i + 1) % size));
    }
    from = communicate(made, site.mesh(program_));
  }
  return site.inst.result_count ? define_result(site, 0, from) : llvm::Error::success();
}

// What was sent first under the tag and not yet received. Rank by rank, in the order of both
// meshes.
llvm::Error Planner::recv(Site &site) {
  if (site.inst.result_count == 0) { // nothing looks at the message
    std::vector<PlannedId> &sent = sent_[static_cast<uint32_t>(integer(site, "tag"))];
    if (!sent.empty())
      sent.erase(sent.begin());
    return llvm::Error::success();
  }
  std::string name = who(site.frame, site.inst.result(0));
  rules::Arg known = checked_.known(site.inst.result(0), site.frame.typing);
  std::vector<PlannedId> &waiting = sent_[static_cast<uint32_t>(integer(site, "tag"))];
  if (waiting.empty())
    return make_error(
        fmt::format("{} is received from another program: nothing here sends it", name));
  llvm::Expected<Placement> place = Placement::make(program_, world_, known, name);
  if (!place)
    return place.takeError();
  const Buffer sent = plan_.buffers[plan_.values[waiting.front()].buffer];
  llvm::ArrayRef<RankId> from = world_.ranks(sent.mesh), to = world_.ranks(place->mesh());
  if (from.size() != to.size())
    return make_error(
        fmt::format("{} is received on {} ranks, and sent by {}", name, to.size(), from.size()));
  RankDims dims(world_.size());
  for (size_t i = 0; i < to.size(); ++i) {
    dims[to[i]] = place->block(world_, to[i]).dims;
    if (dims[to[i]] != sent.on(from[i]))
      return make_error(fmt::format("{} has other extents than what was sent", name));
  }
  LocalStep made{LocalStepForm::Receive};
  made.operands = uses_of(plan_.values[waiting.front()].buffer);
  made.result = buffer(place->dtype(), place->mesh(), std::move(dims));
  waiting.erase(waiting.begin());
  BufferId result = made.result;
  local_step(std::move(made), place->mesh());
  return define_result(site, 0, result);
}

BufferId Planner::combine_all(BufferId from, llvm::ArrayRef<ir::AxisId> axes,
                              ir::Combiner combiner) {
  ir::MeshId mesh = plan_.buffers[from].mesh;
  CommunicatorId id = communicator(mesh, axes);
  if (groups(id).size() == 1)
    return from;
  Communicate made{rules::Collective::AllReduce, combiner};
  made.group = id;
  made.operand = from;
  made.result = buffer_like(from, dims_of_buffer(from));
  made.dtype = plan_.buffers[from].dtype;
  return communicate(made, mesh);
}

// The root of the sum of the squares of all operands, over the axes of the call.
llvm::Expected<BufferId> Planner::total_norm(Site &site) {
  llvm::SmallVector<ir::AxisId, 4> axes;
  if (program_.find(site.inst.attrs, "axis") || program_.find(site.inst.attrs, "group")) {
    llvm::Expected<llvm::SmallVector<ir::AxisId, 4>> named = call_axes(application(site));
    if (!named)
      return named.takeError();
    axes = *named;
  }
  for (llvm::StringRef key : {"norm_type", "ord", "p"})
    if (const ir::AttrValue *order = program_.find(site.inst.attrs, key)) {
      bool two = (order->form == ir::AttrForm::Integer && order->as_integer() == 2) ||
                 (order->form == ir::AttrForm::Float && order->as_number() == 2);
      if (!two)
        return make_error(fmt::format("`{}` is not 2: no other norm is known", key.str()));
    }
  std::optional<BufferId> sum;
  for (PlannedId value : site.values) {
    BufferId member = plan_.values[value].buffer;
    ir::DType dtype = plan_.buffers[member].dtype;
    BufferId squares = op("sum_squares", {member}, dtype, {Dims{}});
    sum = sum ? op("add", {*sum, squares}, dtype, {Dims{}}) : squares;
  }
  if (!sum)
    return make_error("a norm of nothing");
  BufferId all = combine_all(*sum, axes, ir::Combiner::Sum);
  return op("sqrt", {all}, plan_.buffers[all].dtype, {Dims{}});
}

// Clipping multiplies by max_norm / (norm + 1e-6) where that is less than 1.
llvm::Error Planner::norm(Site &site, bool clips) {
  llvm::Expected<BufferId> total = total_norm(site);
  if (!total)
    return total.takeError();
  size_t count = site.inst.result_count, members = site.values.size();
  bool first = !clips || count != members;
  if (first)
    if (llvm::Error error = define_result(site, 0, *total))
      return error;
  if (!clips)
    return llvm::Error::success();
  const ir::AttrValue *most = program_.find(site.inst.attrs, "max_norm");
  bool number = most && (most->form == ir::AttrForm::Float || most->form == ir::AttrForm::Integer);
  if (!number)
    return make_error("`max_norm` is no number");
  double limit = most->form == ir::AttrForm::Float ? most->as_number()
                                                   : static_cast<double>(most->as_integer());
  ir::DType dtype = plan_.buffers[*total].dtype;
  BufferId shifted = op("add", {tensor_slot(0), number_slot(1e-6)}, {*total}, dtype, {Dims{}});
  BufferId inverse = op("reciprocal", {shifted}, dtype, {Dims{}});
  BufferId ratio = op("mul", {tensor_slot(0), number_slot(limit)}, {inverse}, dtype, {Dims{}});
  BufferId factor = op("minimum", {tensor_slot(0), number_slot(1)}, {ratio}, dtype, {Dims{}});
  for (size_t i = 0; first + i < count && i < members; ++i) {
    BufferId member = plan_.values[site.values[i]].buffer;
    BufferId clipped =
        op("mul", {member, factor}, plan_.buffers[member].dtype, dims_of_buffer(member));
    if (llvm::Error error = define_result(site, static_cast<unsigned>(first + i), clipped))
      return error;
  }
  return llvm::Error::success();
}

// --- names of storage

Planner::Name Planner::name_of(Frame &frame, ValueId value, PlannedId planned) {
  auto found = frame.names.find(value.index);
  if (found != frame.names.end())
    return found->second;
  Name name{static_cast<uint32_t>(frame.storages.size()), {}};
  frame.storages.push_back({planned, {}});
  frame.names[value.index] = name;
  return name;
}

// Which storage the results of an instruction are names of, and what it wrote.
llvm::Error Planner::aliases(Site &site) {
  llvm::SmallVector<ValueId, 2> written;
  auto note = [&](const ir::Operand &operand) {
    if (operand.mut && operand.is_value())
      written.push_back(operand.as_value());
  };
  for (const ir::Operand &operand : program_.blocks[site.inst.operands]) {
    note(operand);
    if (operand.form == ir::Operand::Form::List)
      for (const ir::Operand &member : program_.blocks[operand.as_list()]) {
        note(member);
        if (operand.mut && member.is_value())
          written.push_back(member.as_value());
      }
  }
  bool replaces = rules::writes_first(site.op.boundary);
  for (unsigned r = 0; r < site.inst.result_count; ++r) {
    ValueId result = site.inst.result(r);
    ValueId base = program_.values[result].alias_of;
    auto made = site.frame.values.find(result.index);
    if (!base.valid() || site.op.boundary == rules::Boundary::Alias ||
        made == site.frame.values.end())
      continue;
    auto old = site.frame.values.find(base.index);
    if (old == site.frame.values.end())
      continue;
    Name name = name_of(site.frame, base, old->second);
    bool views = site.values.size() == 1 && !llvm::is_contained(written, base) && !replaces;
    if (views && site.op.form == rules::OpForm::Equation)
      name.views.push_back({site.id, r});
    else if (!views)
      site.frame.storages[name.storage].written.push_back({name, made->second});
    site.frame.names[result.index] = std::move(name);
  }
  return llvm::Error::success();
}

// Views again, of other content.
llvm::Expected<BufferId> Planner::replay(Frame &frame, BufferId base, llvm::ArrayRef<View> views) {
  for (View view : views) {
    const ir::Inst inst = program_.insts[view.inst];
    Site site{frame, view.inst, inst, rules_.resolve(inst.op), {}, {}, {}, {}};
    site.operands.read(program_, inst.operands);
    llvm::Expected<PlannedId> operand = find(frame, site.operands.values[0]);
    if (!operand)
      return operand.takeError();
    PlannedValue value = plan_.values[*operand];
    value.value = {};
    value.buffer = base;
    PlannedId replaced = plan_.values.add(value);
    llvm::Expected<llvm::SmallVector<BufferId, 2>> made =
        compute(site, {replaced}, plan_.buffers[base].dtype);
    if (!made)
      return made.takeError();
    base = (*made)[view.result];
  }
  return base;
}

// All of a storage, with what was written through views.
llvm::Expected<PlannedId> Planner::content_of_storage(Frame &frame, uint32_t id) {
  std::vector<Written> written = std::move(frame.storages[id].written);
  frame.storages[id].written.clear();
  for (const Written &each : written) {
    if (each.name.views.empty()) {
      frame.storages[id].content = each.value;
      continue;
    }
    PlannedValue content = plan_.values[frame.storages[id].content];
    BufferId all = content.buffer;
    ir::MeshId mesh = plan_.buffers[all].mesh;
    LocalStep count{LocalStepForm::Count};
    count.result = buffer(ir::DType::I64, mesh, dims_of_buffer(all));
    BufferId numbered = count.result;
    local_step(std::move(count), mesh);
    llvm::Expected<BufferId> seen = replay(frame, numbered, each.name.views);
    if (!seen)
      return seen.takeError();
    if (dims_of_buffer(*seen) != dims_of_buffer(plan_.values[each.value].buffer))
      return make_error("what was written through a view has other extents than the view");
    LocalStep made{LocalStepForm::Overwrite};
    made.operands = uses_of({all, *seen, plan_.values[each.value].buffer});
    made.result = buffer_like(all, dims_of_buffer(all));
    content.value = {};
    content.buffer = made.result;
    local_step(std::move(made), mesh);
    frame.storages[id].content = plan_.values.add(content);
  }
  return frame.storages[id].content;
}

// `alias new, old`: what `old` is a view of, as it is after the write that gave `new`.
llvm::Error Planner::realias(Site &site) {
  if (site.values.size() < 2)
    return define_result(site, 0, plan_.values[site.values[0]].buffer);
  Frame &frame = site.frame;
  Name name = name_of(frame, site.operands.values[0], site.values[0]);
  Name old = name_of(frame, site.operands.values[1], site.values[1]);
  if (name.storage != old.storage)
    return make_error(fmt::format("{} and {} do not share storage",
                                  who(frame, site.operands.values[0]),
                                  who(frame, site.operands.values[1])));
  llvm::Expected<PlannedId> content = content_of_storage(frame, old.storage);
  if (!content)
    return content.takeError();
  llvm::Expected<BufferId> seen = replay(frame, plan_.values[*content].buffer, old.views);
  if (!seen)
    return seen.takeError();
  if (llvm::Error error = define_result(site, 0, *seen))
    return error;
  frame.names[site.inst.result(0).index] = std::move(old);
  return llvm::Error::success();
}

} // namespace spmd::runtime
