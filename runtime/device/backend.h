// A plan on a device: one rank, whose buffers lie in an arena of the device as the plan positions
// them. What the device has no commands for is computed on the host by the cpu backend, between a
// copy there and one back.
#pragma once

#include "runtime/backends/peers.h"
#include "runtime/device/step_runner.h"

namespace spmd::runtime {

struct DeviceOptions {
  uint64_t seed = 0; // of the random numbers that the program draws
  // Called once the plan is prepared, if the host has to compute any of it.
  std::function<void(const HostOps &)> on_host = nullptr;
  // Neighbouring collectives go to the library together.
  bool batches = true;
  // Steps that are run again and again are recorded, and replayed. All ranks say the same.
  bool records = false;
  // With `records`, once: 0 or 1 for each of a list of things, of which those stay 1 that are so on
  // all ranks. All ranks ask at the same point; null: there are no others, or they are equal.
  std::function<llvm::Error(std::string &)> on_all = nullptr;
  // Called if nothing can be recorded, and why: then steps are run one after another.
  std::function<void(const std::string &)> on_no_record = nullptr;
};

class DeviceBackend final : public Backend {
public:
  DeviceBackend(DeviceLink &link, const DeviceOptions &options);
  ~DeviceBackend() override;
  llvm::Error prepare(ir::Program &program, const Plan &plan, const World &world) override;
  bool owns(RankId rank) const override { return rank == own_; }
  llvm::Error write(BufferId to, RankId rank, const Tensor &host) override;
  llvm::Error run(StepRange steps, Deadline deadline) override;
  llvm::Error read(BufferId from, RankId rank, Tensor &host) override;
  bool restart(uint64_t seed) override;
  llvm::Expected<std::string> prepare_bare() override;
  llvm::Error run_bare() override;
  // After `prepare`, of this rank.
  LoweredPlan &lowered() { return *lowered_; }
  // Stretches of steps that are replayed by now.
  size_t recordings() const { return recordings_->count(); }

private:
  class NoPeers; // of the cpu backend inside: it meets no other rank

  llvm::Error prepare_own(ir::Program &program, const Plan &plan, const World &world);
  llvm::Error find_recordable();
  llvm::Error finish_queued();

  DeviceLink &link_;
  DeviceOptions options_;
  RankId own_;
  std::unique_ptr<NoPeers> no_peers_;
  std::unique_ptr<CpuBackend> host_;
  ir::Program *program_ = nullptr;
  SpmdAddress arena_ = 0;
  std::unique_ptr<LoweredPlan> lowered_;
  std::optional<StepSchedule> schedule_;
  std::optional<DeviceBuffers> buffers_;
  std::optional<Recordings> recordings_;
  std::optional<StepRunner> runner_;
  DeviceLink::Calls bare_; // of a run of all steps
};

} // namespace spmd::runtime
