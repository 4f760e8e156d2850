// A backend that holds one rank, seen on rank 0 as one that holds all: what a rank has is fetched
// when it is read, and what several have with the same bits once.
#pragma once

#include "runtime/backends/backend.h"
#include "runtime/launch/team.h"

namespace spmd::runtime {

// All ranks make the same calls. On ranks other than 0 what is read stays empty.
class GatheredBackend final : public Backend {
public:
  GatheredBackend(std::unique_ptr<Backend> own, Team &team, Domain domain)
      : own_(std::move(own)), team_(team), domain_(domain) {}
  bool owns(RankId rank) const override { return rank == team_.rank(); }
  llvm::Error prepare(ir::Program &program, const Plan &plan, const World &world) override;
  llvm::Error write(BufferId to, RankId rank, const Tensor &host) override;
  llvm::Error run(StepRange steps, Deadline deadline) override;
  llvm::Error read(BufferId from, RankId rank, Tensor &host) override;
  llvm::Error read_own(BufferId from, RankId rank, Tensor &host) override {
    return own_->read(from, rank, host);
  }
  bool restart(uint64_t seed) override {
    fetched_ = {};
    return own_->restart(seed);
  }
  llvm::Expected<std::string> prepare_bare() override { return own_->prepare_bare(); }
  llvm::Error run_bare() override { return own_->run_bare(); }

private:
  // What one rank has of the buffer at hand.
  struct Copy {
    uint64_t hash = 0;  // of its bits
    uint32_t there = 0; // 0: it holds nothing
    RankId same_as = 0; // the first rank that has the same
  };
  llvm::Error fetch(BufferId from);
  llvm::Error compare(const Tensor &own, bool there);
  // Rank 0 goes on to judge what it has: the others wait for it.
  void turn_to_data() { team_.doing(team_.leads() ? Activity::Judging : Activity::Preparing); }

  std::unique_ptr<Backend> own_;
  Team &team_;
  Domain domain_;
  const Plan *plan_ = nullptr;
  const World *world_ = nullptr;
  BufferId fetched_; // none: what was read has changed since
  std::vector<Copy> copies_;
  std::vector<Tensor> tensors_; // by rank; on rank 0, of the first that has it
};

} // namespace spmd::runtime
