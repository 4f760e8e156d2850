// What a run takes in this process, known before anything is allocated.
#pragma once

#include "runtime/plan.h"

namespace spmd::runtime {

struct MemoryNeed {
  uint64_t bytes = 0;
  std::string largest; // the largest values and their sizes
};

// Elements lie in doubles, whatever their dtype: all ranks together, at the step that holds most, and
// the reference's values unless nothing is compared.
MemoryNeed memory_need(const ir::Program &program, const Plan &plan, const World &world,
                       bool unchecked);
// Bytes that the machine has free; no limit where it does not tell.
uint64_t available_memory();

} // namespace spmd::runtime
