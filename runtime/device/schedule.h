// Which steps of a plan are given to the device together: neighbouring collectives as a batch, and
// stretches of steps whose commands never change, to be recorded. The same on all ranks.
#pragma once

#include "runtime/device/lowered_plan.h"

namespace spmd::runtime {

class StepSchedule {
public:
  // `batches`: collectives go to the library together.
  StepSchedule(const LoweredPlan &lowered, bool batches);
  // By step, and one more for all: 1 for those that may be part of a recording on all ranks.
  void set_recordable(const std::string &steps);

  // Behind the last collective of the batch that begins with this step.
  uint32_t end_of_batch(uint32_t first) const { return batch_ends_[first]; }
  // Behind the stretch that begins with this step; the step itself, where there is none.
  uint32_t end_of_stretch(uint32_t first, uint32_t last) const;

private:
  uint32_t find_end_of_batch(uint32_t first) const;

  const LoweredPlan &lowered_;
  std::vector<uint32_t> batch_ends_;    // by step
  std::vector<uint32_t> stretch_ends_;  // by step; empty: nothing is recorded
  std::vector<uint32_t> stretch_steps_; // by step: how many come from there on, releases left out
};

// Bytes of the memory of a plan that buffers lie at.
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

} // namespace spmd::runtime
