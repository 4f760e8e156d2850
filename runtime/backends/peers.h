// How a backend that holds the data of one rank reaches those that other processes hold.
#pragma once

#include "runtime/backends/plugin.h"
#include "runtime/plan/plan.h"

namespace spmd::runtime {

// Errors of any call: the ranks cannot go on; Team::failure() says why.
class Peers {
public:
  virtual ~Peers() = default;
  virtual RankId rank() const = 0;
  // Collective over all ranks: makes the groups of those communicators that a step sends over.
  virtual llvm::Error prepare(const Plan &plan, const World &world) = 0;
  // This rank is about to do a step of the plan.
  virtual llvm::Error at(uint32_t step) = 0;
  // Group: not valid for all ranks. `all`: what each position gives, one after another.
  virtual llvm::Error all_gather(CommunicatorId group, const void *own, void *all,
                                 llvm::ArrayRef<uint64_t> bytes) = 0;
  // In one call, what one rank sends another receives; none to itself.
  virtual llvm::Error exchange(CommunicatorId group, llvm::ArrayRef<SpmdSend> sends,
                               llvm::ArrayRef<SpmdReceive> receives) = 0;
};

} // namespace spmd::runtime
