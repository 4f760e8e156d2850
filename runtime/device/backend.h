// A plan on a device: one rank, whose buffers lie in an arena of the device as the plan positions
// them. What the device has no commands for is computed on the host by the cpu backend, between a
// copy there and one back.
#pragma once

#include "runtime/backends/cpu/backend.h"
#include "runtime/backends/peers.h"
#include "runtime/device/fusion/fusion.h"
#include "runtime/device/link.h"

namespace spmd::runtime {

// Steps of one rank that the host computes, by op.
using HostOps = std::map<std::string, uint32_t>;

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
  // After `prepare`, of this rank: the steps that the device carries out, and those that the host
  // does, by op.
  uint32_t device_steps() const { return device_steps_; }
  const HostOps &host_ops() const { return host_ops_; }
  // Stretches of steps that are replayed by now.
  size_t recordings() const;
  // What this rank gives the device in a run of these steps, but for collectives, branches and
  // loops.
  std::vector<Command> commands_of(StepRange steps);

private:
  class Exchange;
  class Nobody; // of the cpu backend inside: it meets no other rank

  // What a collective is, ready: one of the library's, or bytes to and from the other ranks.
  struct CollectiveCall {
    std::vector<Command> before, after; // on this rank alone
    std::optional<SpmdCollective> collective;
    uint32_t group = kSpmdAllRanks; // of what is sent and received
    std::vector<SpmdTransfer> sends, receives;
    bool direct = true; // the library takes and gives the buffers themselves; else scratch memory

    bool sends_any() const { return collective || !sends.empty() || !receives.empty(); }
  };
  // What a step of the plan is, ready.
  struct Ready {
    std::vector<Command> commands;
    bool on_host = false;
    CollectiveCall collective; // of a Communicate step
  };
  // Of a stretch of steps.
  struct Recording {
    uint32_t met = 0;               // so many times
    std::optional<uint32_t> number; // of the plug-in
    bool refused = false;
  };
  // By step, of those that others do work of, or that do that of others.
  using FusedSteps = std::map<uint32_t, FusedStep>;
  static const FusedStep *fused_step(const FusedSteps &steps, uint32_t index) {
    const auto at = steps.find(index);
    return at == steps.end() ? nullptr : &at->second;
  }
  // Bytes of the arena that buffers lie at.
  class UsedBytes {
  public:
    void add(const Buffer &buffer) {
      parts_.push_back({buffer.offset, buffer.offset + buffer.bytes});
    }
    void clear() { parts_.clear(); }
    bool meet(const Buffer &buffer) const {
      return llvm::any_of(parts_, [&](const auto &part) {
        return buffer.offset < part.second && part.first < buffer.offset + buffer.bytes;
      });
    }

  private:
    std::vector<std::pair<int64_t, int64_t>> parts_;
  };

  Placed placed(Use use) const;
  Placed placed(BufferId buffer) const { return placed(Use{buffer, {}}); }
  SpmdAddress address(BufferId buffer) const {
    return arena_ + static_cast<uint64_t>(plan_->buffers[buffer].offset);
  }
  uint64_t bytes_of(BufferId buffer) const;
  bool takes_part(const Step &step) const { return world_->on(step.mesh, own_); }
  // From a mesh to another one.
  bool receives(const Step &step) const {
    return step.form == StepForm::LocalStep &&
           plan_->local_steps[step.index].form == LocalStepForm::Receive;
  }

  llvm::Error prepare_own(ir::Program &program, const Plan &plan, const World &world);
  void lower_steps();
  void prepare_compute(const Step &step, Ready &ready);
  bool lower_local_step(const LocalStep &local, std::vector<Command> &commands);
  bool lower_overwrite(llvm::ArrayRef<Placed> operands, const Placed &to,
                       std::vector<Command> &commands);
  bool lower_pieces(const LocalStep &local, const Placed &from, const Placed &to,
                    std::vector<Command> &commands) const;
  llvm::Error prepare_collective(const Step &step);
  bool is_direct(const Communicate &made) const;
  static bool is_even(const Buffer &buffer, const Groups &groups);
  void lower_collective(const Step &step, CollectiveCall &call) const;
  void lower_combination(const Communicate &made, llvm::ArrayRef<RankId> members,
                         CollectiveCall &call) const;
  void lower_exchange(const Communicate &made, llvm::ArrayRef<RankId> members,
                      CollectiveCall &call) const;
  void find_batches();
  uint32_t end_of_batch(uint32_t first) const;
  llvm::Error find_stretches();
  uint32_t end_of_stretch(uint32_t first, uint32_t last) const;

  DeviceTensor region(BufferId buffer) const;
  void fuse_commands(const Compute &made, uint64_t scratch_bytes, std::vector<Command> &commands);
  const FusedSteps &fused(StepRange steps);
  void add_to(Fusion &fusion, uint32_t index) const;

  llvm::Error run_range(StepRange range);
  llvm::Error run_steps(StepRange range);
  llvm::Error run_stretch(StepRange range);
  llvm::Error record(StepRange range, Recording &recording);
  llvm::Error replay(StepRange range, uint32_t number);
  void forget_recordings();
  bool meets_others(const Step &step) const;
  llvm::Error named(const Step &step, llvm::Error error) const;
  void note(const Step &step);
  llvm::Error run_step(const Step &step, uint32_t index, const FusedStep *fused);
  llvm::Error touch_joined(const FusedStep &fused);
  llvm::Error queue(llvm::ArrayRef<Command> commands);
  llvm::Error on_host(const Step &step, uint32_t index);
  llvm::Error local_step(const Step &step, uint32_t index, llvm::ArrayRef<Command> commands);
  llvm::Error receive(const Step &step);
  llvm::Error collective(const Step &step, const CollectiveCall &call);
  llvm::Error begin_collective(const Communicate &made, const CollectiveCall &call);
  llvm::Error send(const CollectiveCall &call);
  llvm::Error finish_collective(const Communicate &made, const CollectiveCall &call);
  llvm::Error run_batch(StepRange range, const FusedSteps &fused_steps);
  llvm::Error send_batch(llvm::ArrayRef<uint32_t> collectives);
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
  std::vector<Ready> ready_; // by step
  std::map<std::pair<uint32_t, uint32_t>, FusedSteps>
      fused_;                           // by first step of a range, and the one behind
  std::vector<Groups> groups_;          // by communicator
  std::vector<uint32_t> device_groups_; // of the plug-in, by communicator
  std::vector<char> there_;             // by buffer: it holds something
  std::vector<uint32_t> batch_ends_;    // by step
  std::vector<uint32_t> stretch_ends_;  // by step; empty: nothing is recorded
  std::vector<uint32_t> stretch_steps_; // by step: how many come from there on, releases left out
  std::map<std::pair<uint32_t, uint32_t>, Recording>
      recordings_;                     // by first step, and the one behind
  bool no_recording_reported_ = false; // that something is not recorded
  UsedBytes pending_;                  // that collectives which may still go on read or write
  llvm::SmallVector<uint64_t, 2> iterations_; // of the loops around
  uint32_t device_steps_ = 0;
  HostOps host_ops_;
  DeviceLink::Calls bare_; // of a run of all steps
};

} // namespace spmd::runtime
