// Ranks that are processes, of which rank 0 judges: what they say of the values that they hold, and
// how rank 0 asks for the data of one.
#pragma once

#include "runtime/backends/backend.h"
#include "runtime/judge/fingerprint.h"
#include "runtime/launch/team.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace spmd::runtime {

class ValueExchange {
public:
  struct Setup {
    const ir::Program &program;
    const Plan &plan;
    const World &world;
    Backend &backend;
    Team &team;
    uint64_t key; // of the weights of sums
    bool sums;    // they are wanted
  };
  explicit ValueExchange(const Setup &setup) : setup_(setup) {}

  uint64_t key() const { return setup_.key; }
  // The ranks of the mesh of a value, in row-major order over its axes.
  llvm::ArrayRef<RankId> ranks_of(PlannedId id) const;

  // Of all ranks, for the same values, which have data. On rank 0: for each value what the ranks of
  // its mesh say; elsewhere nothing.
  llvm::Expected<std::vector<std::vector<Fingerprint>>> fingerprints(llvm::ArrayRef<PlannedId> ids);
  // Of rank 0: the others read this value next, as it does itself.
  llvm::Error ask_for(PlannedId id);
  llvm::Error ask_for_nothing_more();
  // Of the others: reads what rank 0 asks for, until it asks for nothing more.
  llvm::Error answer(llvm::function_ref<llvm::Error(PlannedId)> read);

private:
  Fingerprint of_own(PlannedId id);

  Setup setup_;
};

} // namespace spmd::runtime
