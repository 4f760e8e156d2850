// The pieces of a dimension that a transition cuts or joins: how long they are, and steps on them.
#pragma once

#include "runtime/plan/planner/builder.h"

#include "rules/transitions/call.h"

namespace spmd::runtime {

// Elements of a tensor per entry of the dimensions from `dim` on.
int64_t before(const Dims &dims, size_t dim);
int64_t total(llvm::ArrayRef<int64_t> lengths);
bool all_equal(llvm::ArrayRef<int64_t> lengths);
// The extents of one piece of a tensor of these extents.
Dims piece_dims(Dims dims, const rules::TransitionMove &move, int64_t length);
// The extents of all pieces joined, one piece as given.
Dims joined_dims(Dims dims, const rules::TransitionMove &move, int64_t length);
bool joins(const rules::TransitionMove &move);

// An operand of a call on its way to the result.
struct MovedOperand {
  BufferId at;
  ir::MeshId mesh;
  std::string name; // of the result, for errors
  ir::DType wire_dtype = ir::DType::Unknown;
  // As tensors say them, by RankId: of the pieces that are cut, and of those that are joined.
  std::vector<TensorSizes::Lengths> sent, joined;
};
// The lengths of the pieces that a rank joins; empty if nothing says them.
llvm::ArrayRef<int64_t> stated_joined(const MovedOperand &at, const rules::TransitionMove &move,
                                      RankId rank);

class PiecePlanner {
public:
  PiecePlanner(const PlanTask &task, PlanBuilder &builder)
      : program_(task.program), world_(task.world), plan_(task.plan), builder_(builder) {}

  // Whether all ranks hold tensors of the same extents, and no tensor says how long pieces are.
  bool has_same_extents(const MovedOperand &at) const {
    return plan_.buffers[at.at].dims.size() == 1 && at.sent.empty() && at.joined.empty();
  }
  // The ranks whose pieces are looked at: all, or the first, whose pieces are those of all; `Cut`
  // and RankDims have as many entries then.
  llvm::ArrayRef<RankId> looked_at(const MovedOperand &at, bool same_extents) const {
    llvm::ArrayRef<RankId> ranks = world_.ranks(at.mesh);
    return same_extents ? ranks.take_front() : ranks;
  }
  size_t entries(bool same_extents) const { return same_extents ? 1 : world_.size(); }

  // The lengths of the pieces of `move.dim` on each rank: as stated, as the shards say, or evenly.
  llvm::Expected<Cut> lengths(MovedOperand &at, const rules::TransitionMove &move,
                              CommunicatorId group);
  // The extents that the own piece of each rank has.
  RankDims own_dims(const MovedOperand &at, const rules::TransitionMove &move, const Cut &lengths,
                    CommunicatorId group);
  CutId uneven_counts(Cut counts, ir::MeshId mesh); // none: all are equal

  // What a collective sends: pieces one after another. Nothing to do where they are.
  void pack(MovedOperand &at, const rules::TransitionMove &move, const Cut &lengths,
            CommunicatorId group);
  // A local step on the pieces of one dimension: what the operand becomes.
  void step(LocalStepForm form, MovedOperand &at, const rules::TransitionMove &move, RankDims dims,
            Cut lengths, CommunicatorId group);

private:
  llvm::Expected<int64_t> block_length(const rules::BlockDim &dim, ir::MeshId mesh,
                                       RankId rank) const;
  CutId add_cut(Cut cut, ir::MeshId mesh);

  const ir::Program &program_;
  const World &world_;
  Plan &plan_;
  PlanBuilder &builder_;
};

} // namespace spmd::runtime
