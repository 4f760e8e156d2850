// The backend of `make_cpu_backend`: its parts are prepare.cc, before the run, and backend.cc.
#pragma once

#include "runtime/backends/backend.h"

#include "runtime/backends/cpu/tensors.h"
#include "runtime/backends/deduplication.h"
#include "runtime/backends/workers.h"
#include "runtime/equation/evaluate.h"

#include "ir/support/error.h"

#include <map>
#include <string>

namespace spmd::runtime {

struct GroupPosition;

class CpuBackend final : public Backend {
public:
  explicit CpuBackend(const CpuOptions &options)
      : options_(options), workers_(std::max(1u, options.threads)) {}
  llvm::Error prepare(ir::Program &program, const Plan &plan, const World &world) override;
  bool owns(RankId rank) const override { return llvm::is_contained(all_, rank); }
  llvm::Error write(BufferId to, RankId rank, const Tensor &host) override;
  llvm::Error run(StepRange steps, Deadline deadline) override;
  llvm::Error read(BufferId from, RankId rank, Tensor &host) override;
  bool restart(uint64_t seed) override;
  // After `prepare`: what a Compute step runs on a rank.
  const PreparedOp &op_of(uint32_t compute, RankId rank) const {
    return prepared_steps_[compute].on(rank);
  }
  const Block *block_of(Use use, RankId rank) const { return block(use, rank); }
  // Of the loops around the steps that are run next.
  void set_iterations(llvm::ArrayRef<uint64_t> of_loops) {
    iterations_.assign(of_loops.begin(), of_loops.end());
  }
  // Of the random numbers that are drawn next.
  void set_seed(uint64_t seed) { options_.seed = seed; }
  // The rank holds nothing under that name any more.
  void forget(BufferId buffer, RankId rank) { tensors_.release(buffer, rank); }

private:
  using Ranks = llvm::ArrayRef<RankId>;
  // A Compute step, prepared: the op for each rank, or one for all.
  struct PreparedStep {
    std::vector<const PreparedOp *> ops;
    uint64_t draws = 0;
    bool looped = false;
    bool threads = false; // worth them
    // Later steps that take the same operands, and whose results cost less if they are made here.
    llvm::SmallVector<uint32_t, 2> ahead; // Compute
    const PreparedOp &on(RankId rank) const { return *ops[ops.size() == 1 ? 0 : rank]; }
  };
  using Key = std::vector<uint64_t>;

  llvm::Error prepare_compute(const Compute &compute, ir::MeshId mesh);
  llvm::Expected<const PreparedOp *> prepare_op(const Compute &compute, RankId rank);
  Key key_of(const Compute &compute, RankId rank) const;
  void classify();
  void find_ahead();
  bool is_worth_threads(llvm::ArrayRef<Use> uses) const;

  llvm::Error run_range(StepRange range, Ranks active);
  llvm::Error run_step(const Step &step, uint32_t index, Ranks active);
  llvm::Error compute(const Step &step, Ranks ranks);
  void deduplicate(const Compute &made, const PreparedStep &prepared, const Step &step,
                   Ranks ranks);
  llvm::Error compute_on(const Compute &made, const PreparedStep &prepared, const Step &step,
                         RankId rank, llvm::MutableArrayRef<SharedTensor> results);
  llvm::SmallVector<SharedTensor, 6> read_by(const Compute &made, RankId rank) const;
  SharedTensor take_ahead(uint32_t compute, const Compute &made, RankId rank) const;
  void deduplicate(const LocalStep &made, const Step &step, Ranks ranks);
  RankId source_of(const LocalStep &made, Use operand, const Step &step, RankId rank) const;
  GroupPosition position_in(const LocalStep &made, RankId rank) const;
  SharedTensor moved_packed(const LocalStep &made, RankId rank);
  SharedTensor local_step_on(const LocalStep &made, const Step &step, RankId rank);
  llvm::Error local_step(const Step &step, Ranks ranks);
  llvm::Expected<llvm::SmallVector<uint32_t, 16>> complete_groups(const Step &step, Ranks ranks);
  void deduplicate(const Communicate &collective, const Groups &groups,
                   llvm::ArrayRef<uint32_t> which);
  void communicate_group(const Communicate &collective, Ranks members,
                         llvm::MutableArrayRef<SharedTensor> results);
  llvm::Error communicate(const Step &step, Ranks ranks);
  llvm::Error communicate_with_peers(const Step &step);
  llvm::Error receive_from_peers(const Step &step);
  llvm::Error branch(uint32_t index, Ranks ranks);
  llvm::Error loop(uint32_t index, Ranks ranks);
  llvm::Expected<bool> holds(BufferId predicate, RankId rank);
  Ranks on_mesh(ir::MeshId mesh, Ranks active, llvm::SmallVectorImpl<RankId> &kept) const;
  llvm::Error check_access(llvm::ArrayRef<Use> reads, llvm::ArrayRef<Use> writes, Ranks ranks);
  uint64_t draws_of(const Compute &compute) const;
  const Block *block(Use use, RankId rank) const {
    return use.place.valid() ? &blocks_[use.place.index][rank] : nullptr;
  }
  // The same number for ranks on which the block, or the extents of the buffer, are the same.
  uint64_t block_class(Use use, RankId rank) const {
    return use.place.valid() ? block_classes_[use.place.index][rank] : 0;
  }
  uint64_t extents_class(BufferId buffer, RankId rank) const {
    llvm::ArrayRef<uint32_t> classes = extents_classes_[buffer.index];
    return classes.empty() ? 0 : classes[rank];
  }

  CpuOptions options_;
  Workers workers_;
  ir::Program *program_ = nullptr;
  const Plan *plan_ = nullptr;
  const World *world_ = nullptr;
  std::unique_ptr<rules::Rules> rules_;
  std::map<Key, std::unique_ptr<PreparedOp>> prepared_;
  std::vector<PreparedStep> prepared_steps_; // by Compute
  // By Compute: its result for certain operands, made by a step before it.
  struct Precomputed {
    llvm::SmallVector<SharedTensor, 6> operands;
    SharedTensor result;
  };
  std::vector<std::vector<Precomputed>> precomputed_;
  std::vector<Groups> groups_;             // by communicator
  std::vector<std::vector<Block>> blocks_; // by placement and rank
  std::vector<std::vector<uint32_t>> block_classes_;
  std::vector<std::vector<uint32_t>> extents_classes_; // by buffer; empty: equal on all ranks
  std::vector<RankId> all_;                            // of this process
  BufferTensors tensors_;
  Deduplication deduplication_;       // of the step at hand
  std::vector<SharedTensor> results_; // of what is done in it, one after another
  Deadline deadline_ = kNoDeadline;
  llvm::SmallVector<uint64_t, 2> iterations_; // of the loops around
};

} // namespace spmd::runtime
