// The steps of a plan as what a device is given for them: commands, collectives, and which steps
// the host computes. Made before the run; nothing of it changes while it goes on.
#pragma once

#include "runtime/backends/cpu/backend.h"
#include "runtime/device/fusion/fusion.h"
#include "runtime/device/interface.h"

namespace spmd::runtime {

// Steps of one rank that the host computes, by op.
using HostOps = std::map<std::string, uint32_t>;

// What a collective is, ready: one of the library's, or bytes to and from the other ranks.
struct CollectiveCall {
  std::vector<Command> before, after; // on this rank alone
  std::optional<SpmdCollective> collective;
  uint32_t group = kSpmdAllRanks; // of what is sent and received
  std::vector<SpmdTransfer> sends, receives;
  bool direct = true; // the library takes and gives the buffers themselves; else scratch memory

  bool sends_any() const { return collective || !sends.empty() || !receives.empty(); }
};

struct LoweredStep {
  std::vector<Command> commands;
  bool on_host = false;
  CollectiveCall collective; // of a Communicate step
};

// By step, of those that others do work of, or that do that of others.
using FusedSteps = std::map<uint32_t, FusedStep>;

class LoweredPlan {
public:
  // `host`: prepared for the plan. `device_groups`: of the plug-in, by communicator.
  LoweredPlan(ir::Program &program, const Plan &plan, const World &world, RankId own,
              CpuBackend &host, std::vector<uint32_t> device_groups);

  // An error: a collective that devices cannot do.
  llvm::Error check_collectives();
  // Commands hold addresses: those of a plan whose memory begins there.
  void lower(SpmdAddress arena);
  // Of the plan and its scratch memory, once it was lowered.
  uint64_t needed_bytes() const;

  const Plan &plan() const { return plan_; }
  const World &world() const { return world_; }
  RankId rank() const { return own_; }
  const LoweredStep &operator[](uint32_t step) const { return steps_[step]; }
  const Groups &groups(CommunicatorId id) const { return groups_[id.index]; }
  SpmdAddress address(BufferId buffer) const {
    return arena_ + static_cast<uint64_t>(plan_.buffers[buffer].offset);
  }
  uint64_t bytes_of(BufferId buffer) const;
  DeviceArray array_of(Use use) const;
  DeviceArray array_of(BufferId buffer) const { return array_of(Use{buffer, {}}); }
  // Whether this rank runs the step.
  bool takes_part(const Step &step) const { return world_.on(step.mesh, own_); }
  // Whether it is a copy from a mesh to another one.
  bool receives(const Step &step) const {
    return step.form == StepForm::LocalStep &&
           plan_.local_steps[step.index].form == LocalStepForm::Receive;
  }
  bool meets_others(const Step &step) const {
    return (step.form == StepForm::Communicate && takes_part(step)) || receives(step);
  }
  // Whether the library takes what ranks hold and gives what they are to hold. The same on all
  // ranks, those that take no part in it included.
  bool is_direct(const Communicate &made) const;
  // With the name of the step in front.
  llvm::Error named(const Step &step, llvm::Error error) const;

  // Which steps of a range do work of one another.
  const FusedSteps &fused(StepRange steps);
  // What this rank gives the device in a run of these steps, but for collectives, branches and
  // loops.
  std::vector<Command> commands_of(StepRange steps);

  // The steps that the device carries out, and those that the host does, by op.
  uint32_t device_steps() const { return device_steps_; }
  const HostOps &host_ops() const { return host_ops_; }

private:
  class Exchange;

  void lower_compute(const Step &step, LoweredStep &lowered);
  bool lower_local_step(const LocalStep &local, std::vector<Command> &commands);
  bool lower_overwrite(llvm::ArrayRef<DeviceArray> operands, const DeviceArray &to,
                       std::vector<Command> &commands);
  bool lower_pieces(const LocalStep &local, const DeviceArray &from, const DeviceArray &to,
                    std::vector<Command> &commands) const;
  llvm::Error check_collective(const Step &step);
  static bool is_even(const Buffer &buffer, const Groups &groups);
  void lower_collective(const Step &step, CollectiveCall &call) const;
  void lower_combination(const Communicate &made, llvm::ArrayRef<RankId> members,
                         CollectiveCall &call) const;
  void lower_exchange(const Communicate &made, llvm::ArrayRef<RankId> members,
                      CollectiveCall &call) const;
  DeviceTensor region(BufferId buffer) const;
  void fuse_commands(const Compute &made, uint64_t scratch_bytes, std::vector<Command> &commands);
  void add_to(Fusion &fusion, uint32_t index) const;

  ir::Program &program_;
  const Plan &plan_;
  const World &world_;
  RankId own_;
  CpuBackend &host_;
  std::vector<Groups> groups_;          // by communicator
  std::vector<uint32_t> device_groups_; // of the plug-in, by communicator
  SpmdAddress arena_ = 0, scratch_ = 0;
  uint64_t scratch_bytes_ = 0;
  std::vector<LoweredStep> steps_;
  // By first step of a range, and the one behind.
  std::map<std::pair<uint32_t, uint32_t>, FusedSteps> fused_;
  uint32_t device_steps_ = 0;
  HostOps host_ops_;
};

} // namespace spmd::runtime
