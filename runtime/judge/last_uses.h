// What a run that is judged step by step reads: of which steps, and until when it needs that.
#pragma once

#include "runtime/plan/plan.h"
#include "runtime/reference/reference.h"

namespace spmd::runtime {

// `alias` of a value of storage and a base, which asks for all names of the storage before it.
bool is_alias(const ir::Program &program, ir::InstId inst);
// What a `recv` gets; none if it is no `recv`, or receives nothing that the program sends.
ir::ValueId value_received_by(const ir::Program &program, Reference &reference,
                              const Execution &execution);

// By PlannedId: the last execution that asks for the value; 0 where none does.
std::vector<uint32_t> last_uses(const ir::Program &program, const Plan &plan, Reference &reference);

// Instructions whose results are held against the reference where only a few are, by their place in
// Plan::executions, in order: `number` of them, or all that there are, drawn by the seed. None that
// takes more than its operands to judge (`alias`, `recv`), and none inside of a branch or a loop.
std::vector<uint32_t> drawn_steps(const ir::Program &program, const Plan &plan, uint64_t seed,
                                  uint64_t number);

} // namespace spmd::runtime
