// Groups of ranks as a library between them numbers them.
#pragma once

#include "runtime/plan/plan.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

#include <map>
#include <vector>

namespace spmd::runtime {

// Groups of ranks that a library knows: those of the same ranks are one.
class GroupCache {
public:
  // Of the library; called in the same order on all ranks.
  using Split = llvm::function_ref<llvm::Error(uint32_t colour, uint32_t key, uint32_t *group)>;
  // By communicator of the plan; kSpmdAllRanks where nothing is sent.
  llvm::Expected<std::vector<uint32_t>> groups_of(const Plan &plan, const World &world, RankId own,
                                                  Split split);

private:
  std::map<std::vector<std::pair<uint32_t, uint32_t>>, uint32_t>
      known_; // by colour and key of each
};

} // namespace spmd::runtime
