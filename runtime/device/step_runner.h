// Carries out the steps of a plan on a device, one after another: queues commands and collectives,
// follows branches and loops, and has the host compute what the device has no commands for.
#pragma once

#include "runtime/device/recordings.h"

namespace spmd::runtime {

class StepRunner {
public:
  StepRunner(DeviceLink &link, LoweredPlan &lowered, const StepSchedule &schedule,
             DeviceBuffers &buffers, Recordings &recordings, CpuBackend &host)
      : link_(link), lowered_(lowered), plan_(lowered.plan()), schedule_(schedule),
        buffers_(buffers), recordings_(recordings), host_(host) {}

  // By recordings where there are some.
  llvm::Error run(StepRange range);
  // Step by step.
  llvm::Error run_steps(StepRange range);
  // For a run from the first step on.
  void restart() { iterations_.clear(); }

private:
  llvm::Error run_step(const Step &step, uint32_t index, const FusedStep *fused);
  llvm::Error wait_for_fused(const FusedStep &fused);
  llvm::Error queue(llvm::ArrayRef<Command> commands);
  llvm::Error run_on_host(const Step &step, uint32_t index);
  llvm::Error run_local_step(const Step &step, uint32_t index, llvm::ArrayRef<Command> commands);
  llvm::Error receive(const Step &step);
  llvm::Expected<bool> is_true(BufferId predicate);
  llvm::Error run_loop(const Loop &made, uint32_t index);
  llvm::Error run_collective(const Step &step, const CollectiveCall &call);
  llvm::Error begin_collective(const Communicate &made, const CollectiveCall &call);
  llvm::Error send(const CollectiveCall &call);
  llvm::Error finish_collective(const Communicate &made, const CollectiveCall &call);
  llvm::Error run_batch(StepRange range, const FusedSteps &fused_steps);
  llvm::Error send_batch(llvm::ArrayRef<uint32_t> collectives);
  void note_pending(const Communicate &made);

  DeviceLink &link_;
  LoweredPlan &lowered_;
  const Plan &plan_;
  const StepSchedule &schedule_;
  DeviceBuffers &buffers_;
  Recordings &recordings_;
  CpuBackend &host_;
  llvm::SmallVector<uint64_t, 2> iterations_; // of the loops that the step is inside of
};

} // namespace spmd::runtime
