// The names of transitions. Their rows: rules/transitions/rows.h.
#pragma once

#include "ir/dialect/words.h"

#include <cstdint>
#include <iterator>
#include <string_view>

namespace spmd::rules {

// What the rows of one name have in common. `Redistribute` has no row of its own: by its ends it
// means one of another name (find_transition). None: no transition.
enum class TransitionOp : uint8_t {
  None,
  AllGather,
  AllReduce,
  ReduceScatter,
  AllToAll,
  Reinterpret,
  Convert,
  Broadcast,
  Reduce,
  CollectivePermute,
  Reorder,
  Redistribute
};
inline constexpr std::string_view kTransitionNames[] = {
    "",           "all_gather",         "all_reduce", "reduce_scatter",
    "all_to_all", "reinterpret",        "convert",    "broadcast",
    "reduce",     "collective_permute", "reorder",    ir::redistribute_word(ir::Dialect::Spmd)};
inline constexpr size_t kTransitionOps = std::size(kTransitionNames);
static_assert(kTransitionOps == static_cast<size_t>(TransitionOp::Redistribute) + 1);

// Empty for None.
constexpr std::string_view name_of(TransitionOp op) {
  return kTransitionNames[static_cast<size_t>(op)];
}
// None if no transition is called so.
constexpr TransitionOp find_transition_op(std::string_view name) {
  for (size_t i = 1; i < kTransitionOps; ++i)
    if (kTransitionNames[i] == name)
      return static_cast<TransitionOp>(i);
  return TransitionOp::None;
}

} // namespace spmd::rules
