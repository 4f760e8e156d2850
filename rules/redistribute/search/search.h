// The cheapest sequence of moves from the source to the target of a problem.
#pragma once

#include "rules/redistribute/search/price.h"

namespace spmd::rules::redistribute {

// States that are expanded before the search goes on as a beam.
inline constexpr uint32_t kBudget = 100'000;

// Moves that one search looks at, on every machine the same.
inline constexpr uint64_t kMostMoves = uint64_t(kBudget) * 64;

struct Found {
  bool reached = false; // false: the cap leaves no path
  bool proven = false;  // nothing is cheaper, among all sequences of moves under the cap
  Cost cost;
  llvm::SmallVector<Move, 4> moves;
  uint32_t expanded = 0;
  uint64_t tried = 0; // moves
};
// A pure function of the problem. Of equally cheap sequences the one whose moves come first
// (comes_before), from the first move on. `most_moves`: where that is less than kMostMoves nothing
// follows it, so that nothing may be reached.
Found search(const Problem &problem, uint32_t budget = kBudget, uint64_t most_moves = kMostMoves);

// The least cost by looking at every state that can be reached, without a heuristic. None if there
// are more states than the budget, or more moves between them than `most_moves`.
std::optional<Cost> exhaustive_cost(const Problem &problem, uint32_t budget = kBudget,
                                    uint64_t most_moves = kMostMoves);

} // namespace spmd::rules::redistribute
