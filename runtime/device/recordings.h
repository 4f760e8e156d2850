// Stretches of steps that a device has recorded, by which it is told to carry them out again.
#pragma once

#include "runtime/device/buffers.h"

#include <functional>

namespace spmd::runtime {

class Recordings {
public:
  // `report`: is told once why a stretch is not recorded; may be empty.
  Recordings(DeviceLink &link, const LoweredPlan &lowered, DeviceBuffers &buffers,
             std::function<void(const std::string &)> report)
      : link_(link), lowered_(lowered), buffers_(buffers), report_(std::move(report)) {}
  ~Recordings();
  Recordings(const Recordings &) = delete;
  Recordings &operator=(const Recordings &) = delete;

  // Empty, or why the device records nothing: by a trial.
  std::string try_out();
  using RunSteps = llvm::function_ref<llvm::Error(StepRange)>;
  // Runs the stretch: as `run_steps` does, or by its recording.
  llvm::Error run(StepRange range, RunSteps run_steps);
  // Stretches that are replayed by now.
  size_t count() const;

private:
  // Of a stretch.
  struct Recording {
    uint32_t met = 0;               // so many times
    std::optional<uint32_t> number; // of the plug-in
    bool refused = false;
  };
  llvm::Error record(StepRange range, Recording &recording, RunSteps run_steps);
  llvm::Error replay(StepRange range, uint32_t number);

  DeviceLink &link_;
  const LoweredPlan &lowered_;
  DeviceBuffers &buffers_;
  std::function<void(const std::string &)> report_;
  std::map<std::pair<uint32_t, uint32_t>, Recording>
      recordings_; // by first step, and the one behind
  bool reported_ = false;
};

} // namespace spmd::runtime
