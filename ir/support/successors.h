// What came after what. Programs are layers that repeat: what followed an entry before most often
// does again.
#pragma once

#include <cstdint>
#include <vector>

namespace spmd::ir {

// Of the entries of a table, each known by its index.
class Successors {
public:
  static constexpr uint32_t kNone = ~0u;
  // What followed the entry that was met last; none if nothing did yet.
  uint32_t likely() const { return last_ == kNone ? kNone : next_[last_]; }
  void meet(uint32_t entry) {
    if (entry >= next_.size())
      next_.resize(entry + 1, kNone);
    if (last_ != kNone)
      next_[last_] = entry;
    last_ = entry;
  }

private:
  std::vector<uint32_t> next_;
  uint32_t last_ = kNone;
};

} // namespace spmd::ir
