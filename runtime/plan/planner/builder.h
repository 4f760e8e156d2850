// Appends to a plan: buffers, groups of ranks that communicate, and steps.
#pragma once

#include "runtime/plan/planner/site.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <array>
#include <map>

namespace spmd::runtime {

class PlanBuilder {
public:
  explicit PlanBuilder(const PlanTask &task)
      : program_(task.program), world_(task.world), plan_(task.plan) {}

  BufferId buffer(ir::DType dtype, ir::MeshId mesh, RankDims dims);
  BufferId buffer_like(BufferId other, RankDims dims) {
    return buffer(plan_.buffers[other].dtype, plan_.buffers[other].mesh, std::move(dims));
  }
  RankDims dims_of_buffer(BufferId id) const { return plan_.buffers[id].dims; }
  // The same function of the extents on each rank of the mesh.
  llvm::Expected<RankDims> map_dims(ir::MeshId mesh,
                                    llvm::function_ref<llvm::Expected<Dims>(RankId)> of) const;
  ir::DType dtype_of(const rules::TensorInfo &known) const {
    return known.shape.valid() ? program_.shapes[known.shape].dtype : ir::DType::Unknown;
  }
  // Where what the buffer holds lies in the whole; none: it is not as the type says.
  PlacementId place_of(const rules::TensorInfo &known, const Buffer &buffer);

  CommunicatorId communicator(ir::MeshId mesh, llvm::ArrayRef<ir::AxisId> axes);
  const Groups &groups(CommunicatorId id) const { return groups_[id.index]; }
  Span uses(llvm::ArrayRef<Use> list);
  Span uses_of(llvm::ArrayRef<BufferId> list);
  Span members(llvm::ArrayRef<PlannedId> list);

  // The instruction that steps are of from now on; the one before.
  ir::InstId begin(ir::InstId inst) { return std::exchange(inst_, inst); }
  void step(StepForm form, size_t index, ir::MeshId mesh);
  void local_step(LocalStep local, ir::MeshId mesh);
  // Appends the collective and its step; its result.
  BufferId communicate(const Communicate &made, ir::MeshId mesh);
  BufferId copy(BufferId from, RankDims dims);
  BufferId copy(BufferId from) { return copy(from, dims_of_buffer(from)); }
  void copy_into(BufferId from, BufferId to);

  // Around the steps of a branch or a loop, which the data decide on.
  void enter_nest() { ++nests_; }
  void leave_nest() { --nests_; }
  bool is_nested() const { return nests_ > 0; }

private:
  const ir::Program &program_;
  const World &world_;
  Plan &plan_;
  ir::InstId inst_;                                           // at hand
  uint32_t nests_ = 0;                                        // branches and loops around
  std::vector<Groups> groups_;                                // by communicator
  std::map<std::array<uint32_t, 3>, PlacementId> placements_; // by type, shape, sizes
};

} // namespace spmd::runtime
