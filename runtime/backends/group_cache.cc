// A group is asked for once, and only where something is sent in it.
#include "runtime/backends/group_cache.h"

#include "runtime/backends/plugin.h"

namespace spmd::runtime {

llvm::Expected<std::vector<uint32_t>> GroupCache::groups_of(const Plan &plan, const World &world,
                                                            RankId own, Split split) {
  std::vector<uint32_t> made(plan.communicators.size(), kSpmdAllRanks);
  std::vector<bool> used(plan.communicators.size(), false);
  for (const Communicate &collective : plan.communicates)
    used[collective.group.index] = true;
  for (uint32_t c = 0; c < used.size(); ++c) {
    if (!used[c])
      continue;
    const Communicator &wanted = plan.communicators[CommunicatorId{c}];
    Groups groups = world.groups(wanted.mesh, wanted.axes);
    if (groups.size() == 1)
      continue;
    std::vector<std::pair<uint32_t, uint32_t>> key;
    for (RankId rank = 0; rank < world.size(); ++rank)
      if (world.on(wanted.mesh, rank))
        key.push_back({groups.group_of(rank), groups.position(rank)});
      else
        key.push_back({kSpmdNoColour, 0});
    auto [at, fresh] = known_.try_emplace(key, kSpmdAllRanks);
    if (fresh)
      if (llvm::Error error = split(key[own].first, key[own].second, &at->second))
        return error;
    made[c] = at->second;
  }
  return made;
}

} // namespace spmd::runtime
