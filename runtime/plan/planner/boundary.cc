// What boundary ops become: another name for a buffer, a local step, a few ops.
#include "runtime/plan/planner/boundary.h"

#include "ir/claims.h"
#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <fmt/format.h>

namespace spmd::runtime {

namespace {

rules::Slot tensor_slot(uint32_t place) { return {rules::Slot::Form::Tensor, place, 1, {}, {}}; }
rules::Slot number_slot(double number) {
  return {rules::Slot::Form::Literal, 0, 0, ir::AttrValue::number(number), {}};
}

} // namespace

llvm::Error BoundaryPlanner::plan(PlanSite &site) {
  auto give = [&](size_t operand) {
    return site.inst.result_count
               ? values_.define_result(site, 0, plan_.values[site.values[operand]].buffer)
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
    return storage_.alias(site);
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
llvm::Error BoundaryPlanner::step_of(PlanSite &site) {
  if (site.inst.result_count > 0)
    return make_error("what the optimizer makes of a parameter is not in the program: only what "
                      "`step` reads can be checked");
  if (site.frame.call == 0 && site.values.size() > 1)
    plan_.optimizer_inputs.push_back({site.values[1], site.operands.values[0]});
  return llvm::Error::success();
}

llvm::Error BoundaryPlanner::axis_index(PlanSite &site) {
  llvm::Expected<llvm::SmallVector<ir::AxisId, 4>> axes = call_axes(site.application(program_));
  if (!axes)
    return axes.takeError();
  rules::TensorInfo known = checked_.known(site.inst.result(0), site.frame.typing);
  llvm::Expected<Dims> dims =
      dims_of(program_, known.shape, values_.who(site.frame, site.inst.result(0)));
  if (!dims)
    return dims.takeError();
  ir::MeshId mesh = site.mesh(program_);
  LocalStep made{LocalStepForm::Coordinate};
  made.group = builder_.communicator(mesh, *axes);
  made.result = builder_.buffer(builder_.dtype_of(known), mesh, {*dims});
  BufferId result = made.result;
  builder_.local_step(std::move(made), mesh);
  return values_.define_result(site, 0, result);
}

// The value of a scale as a fraction: sizes of axes, as the mesh has them.
llvm::Expected<std::pair<double, double>> BoundaryPlanner::factor(PlanSite &site, ir::ScaleId by) {
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

llvm::Error BoundaryPlanner::rescale(PlanSite &site) {
  const ir::AttrValue *by = program_.find(site.inst.attrs, "by");
  if (!by || by->form != ir::AttrForm::Scale)
    return make_error("`by` is no scale");
  llvm::Expected<std::pair<double, double>> number = factor(site, by->as<ir::ScaleId>());
  if (!number)
    return number.takeError();
  LocalStep made{LocalStepForm::Scale};
  BufferId from = plan_.values[site.values[0]].buffer;
  made.operands = builder_.uses_of(from);
  made.result = builder_.buffer_like(from, builder_.dims_of_buffer(from));
  made.factor = number->first;
  made.divisor = number->second;
  BufferId result = made.result;
  builder_.local_step(std::move(made), plan_.buffers[from].mesh);
  return values_.define_result(site, 0, result);
}

// Random numbers are a hash of where they are drawn, and of the entries of a state that is data:
// one that is made here has none.
llvm::Error BoundaryPlanner::random_state(PlanSite &site) {
  rules::TensorInfo known = checked_.known(site.inst.result(0), site.frame.typing);
  Dims dims = {0};
  if (known.shape.valid()) {
    llvm::Expected<Dims> stated =
        dims_of(program_, known.shape, values_.who(site.frame, site.inst.result(0)));
    if (!stated)
      return stated.takeError();
    dims = *stated;
  }
  ir::DType dtype = builder_.dtype_of(known);
  ir::MeshId mesh = site.mesh(program_);
  LocalStep made{LocalStepForm::Zero};
  made.result = builder_.buffer(dtype == ir::DType::Unknown ? ir::DType::I64 : dtype, mesh, {dims});
  BufferId result = made.result;
  builder_.local_step(std::move(made), mesh);
  return values_.define_result(site, 0, result);
}

// On to the next coordinate of the axis; without one, to a peer that receives it.
llvm::Error BoundaryPlanner::send_on(PlanSite &site) {
  BufferId from = plan_.values[site.values[0]].buffer;
  if (!program_.find(site.inst.attrs, "axis") && !program_.find(site.inst.attrs, "group")) {
    sent_[static_cast<uint32_t>(site.integer(program_, "tag"))].push_back(site.values[0]);
    return site.inst.result_count ? values_.define_result(site, 0, from) : llvm::Error::success();
  }
  llvm::Expected<llvm::SmallVector<ir::AxisId, 4>> axes = call_axes(site.application(program_));
  if (!axes)
    return axes.takeError();
  CommunicatorId id = builder_.communicator(site.mesh(program_), *axes);
  size_t size = builder_.groups(id).size();
  if (size > 1) {
    Communicate made{rules::Collective::Permute};
    made.group = id;
    made.operand = from;
    made.result = builder_.buffer_like(from, builder_.dims_of_buffer(from));
    made.dtype = plan_.buffers[from].dtype;
    made.perm = {static_cast<uint32_t>(plan_.numbers.size()), static_cast<uint32_t>(2 * size)};
    for (size_t i = 0; i < size; ++i) {
      plan_.numbers.push_back(static_cast<int64_t>(i));
      plan_.numbers.push_back(static_cast<int64_t>((i + 1) % size));
    }
    from = builder_.communicate(made, site.mesh(program_));
  }
  return site.inst.result_count ? values_.define_result(site, 0, from) : llvm::Error::success();
}

// What was sent first under the tag and not yet received. Rank by rank, in the order of both
// meshes.
llvm::Error BoundaryPlanner::recv(PlanSite &site) {
  if (site.inst.result_count == 0) { // nothing looks at the message
    std::vector<PlannedId> &sent = sent_[static_cast<uint32_t>(site.integer(program_, "tag"))];
    if (!sent.empty())
      sent.erase(sent.begin());
    return llvm::Error::success();
  }
  std::string name = values_.who(site.frame, site.inst.result(0));
  rules::TensorInfo known = checked_.known(site.inst.result(0), site.frame.typing);
  std::vector<PlannedId> &waiting = sent_[static_cast<uint32_t>(site.integer(program_, "tag"))];
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
  made.operands = builder_.uses_of(plan_.values[waiting.front()].buffer);
  made.result = builder_.buffer(place->dtype(), place->mesh(), std::move(dims));
  waiting.erase(waiting.begin());
  BufferId result = made.result;
  builder_.local_step(std::move(made), place->mesh());
  return values_.define_result(site, 0, result);
}

BufferId BoundaryPlanner::combine_all(BufferId from, llvm::ArrayRef<ir::AxisId> axes,
                                      ir::Combiner combiner) {
  ir::MeshId mesh = plan_.buffers[from].mesh;
  CommunicatorId id = builder_.communicator(mesh, axes);
  if (builder_.groups(id).size() == 1)
    return from;
  Communicate made{rules::Collective::AllReduce, combiner};
  made.group = id;
  made.operand = from;
  made.result = builder_.buffer_like(from, builder_.dims_of_buffer(from));
  made.dtype = plan_.buffers[from].dtype;
  return builder_.communicate(made, mesh);
}

// The root of the sum of the squares of all operands, over the axes of the call.
llvm::Expected<BufferId> BoundaryPlanner::total_norm(PlanSite &site) {
  llvm::SmallVector<ir::AxisId, 4> axes;
  if (program_.find(site.inst.attrs, "axis") || program_.find(site.inst.attrs, "group")) {
    llvm::Expected<llvm::SmallVector<ir::AxisId, 4>> named = call_axes(site.application(program_));
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
    BufferId squares = equations_.op("sum_squares", {member}, dtype, {Dims{}});
    sum = sum ? equations_.op("add", {*sum, squares}, dtype, {Dims{}}) : squares;
  }
  if (!sum)
    return make_error("a norm of nothing");
  BufferId all = combine_all(*sum, axes, ir::Combiner::Sum);
  return equations_.op("sqrt", {all}, plan_.buffers[all].dtype, {Dims{}});
}

// Clipping multiplies by max_norm / (norm + 1e-6) where that is less than 1.
llvm::Error BoundaryPlanner::norm(PlanSite &site, bool clips) {
  llvm::Expected<BufferId> total = total_norm(site);
  if (!total)
    return total.takeError();
  size_t count = site.inst.result_count, members = site.values.size();
  bool first = !clips || count != members;
  if (first)
    if (llvm::Error error = values_.define_result(site, 0, *total))
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
  BufferId shifted =
      equations_.op("add", {tensor_slot(0), number_slot(1e-6)}, {*total}, dtype, {Dims{}});
  BufferId inverse = equations_.op("reciprocal", {shifted}, dtype, {Dims{}});
  BufferId ratio =
      equations_.op("mul", {tensor_slot(0), number_slot(limit)}, {inverse}, dtype, {Dims{}});
  BufferId factor =
      equations_.op("minimum", {tensor_slot(0), number_slot(1)}, {ratio}, dtype, {Dims{}});
  for (size_t i = 0; first + i < count && i < members; ++i) {
    BufferId member = plan_.values[site.values[i]].buffer;
    BufferId clipped = equations_.op("mul", {member, factor}, plan_.buffers[member].dtype,
                                     builder_.dims_of_buffer(member));
    if (llvm::Error error = values_.define_result(site, static_cast<unsigned>(first + i), clipped))
      return error;
  }
  return llvm::Error::success();
}

} // namespace spmd::runtime
