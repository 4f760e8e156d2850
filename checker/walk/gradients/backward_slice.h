// Searches backwards from a value through what it is made of. Internal to the checker.
#pragma once

#include "checker/program_queries.h"

#include "ir/program.h"
#include "rules/apply.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

namespace spmd::checker {

inline constexpr size_t kReach = 1 << 10; // values that a search backwards looks at

bool is_forward(const ir::Inst &inst);
rules::ResolvedOp op_of(const ir::Program &program, ir::InstId inst);
// A constant in a backward, such as the ones with which a pass begins: the gradient of its loss.
bool may_begin_backward(const ir::Program &program, rules::Rules &rules, ir::InstId id);
// What a backward adds to memory that was cleared, or that holds what passes before it have left: a
// gradient stays that of its parameter there.
bool accumulates(const ir::Program &program, ir::InstId id);
// The operands that a result is made of: of a call on a list, the one in its place.
llvm::SmallVector<ir::ValueId, 4> sources(const ir::Program &program, ir::InstId id,
                                          ir::ValueId result);
// The parameter that a value is, or is a cast or a view of; none if it is made of several values.
ir::ValueId parameter_behind(const ir::Program &program, ir::ValueId value);

// Adds what is needed for it: in reverse program order, the operands of instructions of which a
// result is needed, and of those for which `has_effect` is true, whatever becomes of their results.
void add_needed(const ir::Program &program, llvm::BitVector &values,
                llvm::function_ref<bool(ir::InstId)> has_effect);

// Visits definitions backwards, nearest first, through operands that `follow` names; until `found`.
template <class Follow, class Found>
ir::ValueId search(const ir::Program &program, llvm::ArrayRef<ir::ValueId> start, Follow follow,
                   Found found) {
  llvm::SmallVector<ir::ValueId, 16> queue(start.begin(), start.end());
  llvm::DenseSet<uint32_t> seen;
  for (size_t at = 0; at < queue.size() && at < kReach; ++at) {
    ir::ValueId value = queue[at];
    if (!seen.insert(value.index).second)
      continue;
    if (found(value))
      return value;
    ir::InstId inst = defining_inst(program, value);
    if (!inst.valid())
      continue;
    for (ir::ValueId operand : sources(program, inst, value))
      if (follow(inst, operand))
        queue.push_back(operand);
  }
  return {};
}

} // namespace spmd::checker
