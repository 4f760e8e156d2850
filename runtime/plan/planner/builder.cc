// What is appended to a plan. Equal placements and communicators are one.
#include "runtime/plan/planner/builder.h"

#include "ir/support/arrays.h"
#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

BufferId PlanBuilder::buffer(ir::DType dtype, ir::MeshId mesh, RankDims dims) {
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
PlanBuilder::map_dims(ir::MeshId mesh, llvm::function_ref<llvm::Expected<Dims>(RankId)> of) const {
  RankDims all(world_.size());
  for (RankId rank : world_.ranks(mesh)) {
    llvm::Expected<Dims> dims = of(rank);
    if (!dims)
      return dims.takeError();
    all[rank] = std::move(*dims);
  }
  return all;
}

CommunicatorId PlanBuilder::communicator(ir::MeshId mesh, llvm::ArrayRef<ir::AxisId> axes) {
  for (uint32_t i = 0; i < plan_.communicators.size(); ++i)
    if (const Communicator &each = plan_.communicators[CommunicatorId{i}];
        each.mesh == mesh && ir::as_array(each.axes) == axes)
      return CommunicatorId{i};
  groups_.push_back(world_.groups(mesh, axes));
  return plan_.communicators.add({mesh, {axes.begin(), axes.end()}});
}

Span PlanBuilder::uses(llvm::ArrayRef<Use> list) {
  Span span{static_cast<uint32_t>(plan_.uses.size()), static_cast<uint32_t>(list.size())};
  plan_.uses.insert(plan_.uses.end(), list.begin(), list.end());
  return span;
}

Span PlanBuilder::uses_of(llvm::ArrayRef<BufferId> list) {
  llvm::SmallVector<Use, 4> made;
  for (BufferId each : list)
    made.push_back({each, {}});
  return uses(made);
}

Span PlanBuilder::members(llvm::ArrayRef<PlannedId> list) {
  Span span{static_cast<uint32_t>(plan_.members.size()), static_cast<uint32_t>(list.size())};
  plan_.members.insert(plan_.members.end(), list.begin(), list.end());
  return span;
}

// A block of a whole, if the extents on all ranks are those that the type says; else what a rank
// holds is all there is.
PlacementId PlanBuilder::place_of(const rules::TensorInfo &known, const Buffer &buffer) {
  auto [at, added] = placements_.try_emplace(
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

void PlanBuilder::step(StepForm form, size_t index, ir::MeshId mesh) {
  plan_.steps.push_back({form, static_cast<uint32_t>(index), mesh, inst_});
}

void PlanBuilder::local_step(LocalStep local, ir::MeshId mesh) {
  plan_.local_steps.push_back(std::move(local));
  step(StepForm::LocalStep, plan_.local_steps.size() - 1, mesh);
}

BufferId PlanBuilder::communicate(const Communicate &made, ir::MeshId mesh) {
  plan_.communicators[made.group].used = true;
  plan_.communicates.push_back(made);
  step(StepForm::Communicate, plan_.communicates.size() - 1, mesh);
  return made.result;
}

BufferId PlanBuilder::copy(BufferId from, RankDims dims) {
  BufferId to = buffer_like(from, std::move(dims));
  copy_into(from, to);
  return to;
}

void PlanBuilder::copy_into(BufferId from, BufferId to) {
  LocalStep made{LocalStepForm::Copy};
  made.operands = uses_of(from);
  made.result = to;
  local_step(std::move(made), plan_.buffers[to].mesh);
}

} // namespace spmd::runtime
