// The buffers of a plan in the memory of a device: which of them hold something, and which of their
// bytes collectives still use.
#pragma once

#include "runtime/device/link.h"
#include "runtime/device/schedule.h"

namespace spmd::runtime {

class DeviceBuffers {
public:
  DeviceBuffers(DeviceLink &link, const LoweredPlan &lowered) : link_(link), lowered_(lowered) {
    clear();
  }

  // None of them holds anything.
  void clear();
  bool holds_data(BufferId buffer) const { return filled_[buffer.index]; }
  // What holds something behind a step, and what does not any more.
  void note_done(const Step &step);

  llvm::Error store(BufferId buffer, const Tensor &host);
  llvm::Error fetch(BufferId buffer, Tensor &host);

  // A collective that was just queued may still use these bytes.
  void add_pending(BufferId buffer) { pending_.add(lowered_.plan().buffers[buffer]); }
  // All collectives have come to their end, or what is given next waits for them.
  void clear_pending() { pending_.clear(); }
  // Before the device computes with these bytes: collectives that still use them come to their end.
  llvm::Error wait_for(BufferId buffer);
  llvm::Error wait_for(llvm::ArrayRef<Use> uses);

private:
  DeviceLink &link_;
  const LoweredPlan &lowered_;
  std::vector<char> filled_; // by buffer
  UsedBytes pending_;
};

} // namespace spmd::runtime
