// Other ways to redistribute, priced by the same table.
#pragma once

#include "rules/redistribute/search/search.h"

namespace spmd::property {

struct Opponent {
  uint64_t bytes = 0, peak = 0;
  unsigned collectives = 0;
};

// One mesh axis at a time, as DTensor does by default: from the last axis to the first, gathering
// where the axes outside of it shard the dimension otherwise than in the target; then from the
// first to the last. None where axes that share a dimension are not in mesh order, which it cannot
// express.
std::optional<Opponent> greedy(const rules::redistribute::Problem &problem);

// Slices, then one permutation of blocks, then gathers (arXiv 2112.01075), the best choice of each.
// None where an end is partial.
std::optional<Opponent> normal_form(const rules::redistribute::Problem &problem);

} // namespace spmd::property
