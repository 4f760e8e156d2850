// What a run takes in this process, known before anything is allocated.
#pragma once

#include "runtime/plan/plan.h"

namespace spmd::runtime {

struct MemoryNeed {
  uint64_t bytes = 0;
  std::string largest; // the largest values and their sizes
};

// Elements lie in doubles, whatever their dtype: all ranks together or the one of this process, at
// the step that holds most; where something is compared here, what was read of all ranks, and the
// reference's values. What is wrong is read besides: nobody knows before what that will be.
struct MemoryScope {
  std::optional<RankId> rank; // none: all
  bool compares = true;
  bool gradients = false;                        // the reference differentiates
  bool stepwise = false;                         // every step is compared
  std::optional<llvm::ArrayRef<uint32_t>> drawn; // steps that alone are compared
  bool reads = true; // what ranks hold is read here; else fingerprints of it
};
MemoryNeed memory_need(const ir::Program &program, const Plan &plan, const World &world,
                       MemoryScope scope);
// The largest values and their sizes in declared element types.
std::string largest_values(const ir::Program &program, const Plan &plan);
// Bytes that this process may still take: what the machine, its container (cgroup) and its own
// limits (ulimit -v) leave; no limit where none of them tells.
uint64_t available_memory();

} // namespace spmd::runtime
