// What the names imply; spellings: words.cc.
#include "rules/transitions/rows.h"

#include "ir/support/check.h"

#include "llvm/ADT/STLExtras.h"

#include <array>

namespace spmd::rules {
namespace {

using rows::kJointTransitions;
using rows::kTransitions;

// The ends of the row that is marked `unstated`, if one is.
constexpr auto kUnstatedWords = [] {
  std::array<DefaultKinds, kTransitionOps> words;
  for (const Transition &row : kTransitions)
    if (row.unstated)
      words[static_cast<size_t>(row.op)] = {row.src, row.dst, row.src == ir::Kind::Partial};
  return words;
}();

} // namespace

int64_t ring_bytes(Collective collective, int64_t bytes, int64_t ranks) {
  switch (collective) {
  case Collective::None:
    return 0;
  case Collective::AllReduce:
    return 2 * bytes / ranks * (ranks - 1);
  case Collective::AllGather:
  case Collective::ReduceScatter:
  case Collective::AllToAll:
  case Collective::Broadcast:
  case Collective::Permute:
    return bytes / ranks * (ranks - 1);
  }
  return 0;
}

llvm::ArrayRef<Transition> transitions() { return kTransitions; }
llvm::ArrayRef<Transition> joint_transitions() { return kJointTransitions; }

const Transition *find_transition(TransitionOp op, ir::Kind src, ir::Kind dst) {
  if (op == TransitionOp::Reorder)
    return rows::row_of(kJointTransitions, op, src, dst);
  if (op != TransitionOp::Redistribute)
    return rows::row_of(kTransitions, op, src, dst);
  const Transition *row = llvm::find_if(kTransitions, [&](const Transition &each) {
    return each.redistributes && each.src == src && each.dst == dst;
  });
  return row == std::end(kTransitions) ? nullptr : row;
}

bool redistributes(TransitionOp op) {
  return op == TransitionOp::Redistribute || llvm::any_of(kTransitions, [&](const Transition &row) {
           return row.op == op && row.redistributes;
         });
}

const Transition *dual_of(const Transition &row) {
  return row.composed ? nullptr : find_transition(row.dual.op, row.dual.src, row.dual.dst);
}

TransitionParts parts_of(const Transition &row) {
  SPMD_CHECK(row.composed, "only a composed row has parts");
  return {find_transition(row.op, row.src, ir::Kind::Replicate),
          find_transition(TransitionOp::Reinterpret, ir::Kind::Replicate, row.dst)};
}

const DefaultKinds &unstated_words(TransitionOp op) {
  return kUnstatedWords[static_cast<size_t>(op)];
}

} // namespace spmd::rules
