// A plan on a device: one rank, whose buffers lie in an arena of the device as the plan places them. What the
// device has no commands for is computed on the host by the cpu backend, between a copy there and one back.
#pragma once

#include "runtime/backends/cpu_backend.h"
#include "runtime/backends/peers.h"
#include "runtime/device/commands.h"
#include "runtime/device/link.h"

namespace spmd::runtime {

// Steps of one rank that the host computes, by op.
using HostOps = std::map<std::string, uint32_t>;

struct DeviceOptions {
  uint64_t seed = 0; // of the random numbers that the program draws
  // Told once the plan is prepared, if the host has to compute any of it.
  std::function<void(const HostOps &)> on_host = nullptr;
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
  llvm::Error stop(StopMode mode) override;
  // After `prepare`, of this rank: the steps that the device carries out, and those that the host does, by op.
  uint32_t device_steps() const { return device_steps_; }
  const HostOps &host_ops() const { return host_ops_; }

private:
  class Nobody; // of the cpu backend inside: it meets no other rank

  // What a step of the plan is, ready.
  struct Ready {
    std::vector<Command> commands;
    bool on_host = false;
  };
  // Bytes of the arena that a collective which may still go on reads or writes.
  struct Pending {
    int64_t first, last;
  };

  Placed placed(Use use) const;
  Placed placed(BufferId buffer) const { return placed(Use{buffer, {}}); }
  SpmdAddress address(BufferId buffer) const {
    return arena_ + static_cast<uint64_t>(plan_->buffers[buffer].offset);
  }
  uint64_t bytes_of(BufferId buffer) const;
  bool takes_part(const Step &step) const { return world_->on(step.mesh, own_); }

  void lower_steps();
  void prepare_compute(const Step &step, Ready &ready);
  bool lower_act(const Act &act, std::vector<Command> &commands);
  bool lower_overwrite(llvm::ArrayRef<Placed> operands, const Placed &to,
                       std::vector<Command> &commands);
  bool lower_pieces(const Act &act, const Placed &from, const Placed &to,
                    std::vector<Command> &commands) const;
  llvm::Error prepare_wire(const Step &step);

  llvm::Error run_range(StepRange range);
  llvm::Error run_step(const Step &step, uint32_t index);
  llvm::Error queue(llvm::ArrayRef<Command> commands);
  llvm::Error on_host(const Step &step, uint32_t index);
  llvm::Error act(const Step &step, uint32_t index);
  llvm::Error receive(const Step &step);
  llvm::Error wire(const Step &step);
  llvm::Error combine(const Communicate &made, llvm::ArrayRef<RankId> members);
  llvm::Error exchange(const Communicate &made, llvm::ArrayRef<RankId> members);
  llvm::Error convert(const Placed &from, const Placed &to, double divisor);
  void wait_later(const Communicate &made);
  llvm::Expected<bool> holds(BufferId predicate);
  llvm::Error loop(const Loop &made, uint32_t index);
  llvm::Error touch(llvm::ArrayRef<Use> uses);
  llvm::Error touch(BufferId buffer);
  llvm::Error settle();
  llvm::Error fetch(BufferId buffer, Tensor &host);
  llvm::Error store(BufferId buffer, const Tensor &host);

  DeviceLink &link_;
  DeviceOptions options_;
  RankId own_;
  std::unique_ptr<Nobody> nobody_;
  std::unique_ptr<CpuBackend> host_;
  ir::Program *program_ = nullptr;
  const Plan *plan_ = nullptr;
  const World *world_ = nullptr;
  SpmdAddress arena_ = 0, scratch_ = 0;
  uint64_t scratch_bytes_ = 0;
  std::vector<Ready> ready_;            // by step
  std::vector<Groups> groups_;          // by communicator
  std::vector<uint32_t> device_groups_; // of the plug-in, by communicator
  std::vector<char> there_;             // by buffer: it holds something
  std::vector<Pending> pending_;
  llvm::SmallVector<uint64_t, 2> iterations_; // of the loops around
  uint32_t device_steps_ = 0;
  HostOps host_ops_;
};

} // namespace spmd::runtime
