// Which steps a run judges of which only a few are to be judged.
#pragma once

#include "runtime/plan/plan.h"

namespace spmd::runtime {

// Instructions whose results are held against the reference, by their place in Plan::executions, in
// order: `number` of them, or all that there are, drawn by the seed. None that takes more than its
// operands to judge (`alias`, `recv`), and none inside of a branch or a loop.
std::vector<uint32_t> drawn_steps(const ir::Program &program, const Plan &plan, uint64_t seed,
                                  uint64_t number);

} // namespace spmd::runtime
