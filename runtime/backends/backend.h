// The interface of what carries out a plan. It only computes and moves data; every check reads the
// data back and is made above it.
#pragma once

#include "runtime/plan/plan.h"

#include "ir/support/error.h"

#include <chrono>
#include <memory>

namespace spmd::runtime {

using Deadline = std::chrono::steady_clock::time_point;
inline constexpr Deadline kNoDeadline = Deadline::max();

class Peers;

// An error of `prepare`: what carries out the rank has less memory than is needed.
class NoDeviceMemory final : public llvm::ErrorInfo<NoDeviceMemory> {
public:
  NoDeviceMemory(uint64_t needed, std::optional<uint64_t> free) : needed(needed), free(free) {}
  void log(llvm::raw_ostream &out) const override;
  std::error_code convertToErrorCode() const override { return llvm::inconvertibleErrorCode(); }

  uint64_t needed;              // bytes
  std::optional<uint64_t> free; // none: enough bytes, and the device gives none all the same
  static char ID;
};

// Errors are what a run cannot do: an op that no kernel knows, a deadline that passed, ranks that
// disagree about the way to go.
class Backend {
public:
  virtual ~Backend() = default;
  // Once, before all else. The program is interned into; plan and world must outlive the backend.
  virtual llvm::Error prepare(ir::Program &program, const Plan &plan, const World &world) = 0;
  // Whether this process holds the data of a rank: others are written and read elsewhere.
  virtual bool owns(RankId) const { return true; }
  // The extents and the dtype are those of the buffer on that rank.
  virtual llvm::Error write(BufferId to, RankId rank, const Tensor &host) = 0;
  // Steps in order; a range may not begin or end inside of a branch or a loop.
  virtual llvm::Error run(StepRange steps, Deadline deadline) = 0;
  // What the buffer holds after the steps that ran last.
  virtual llvm::Error read(BufferId from, RankId rank, Tensor &host) = 0;
  // The same of a rank that this process holds; no other process takes part.
  virtual llvm::Error read_own(BufferId from, RankId rank, Tensor &host) {
    return read(from, rank, host);
  }
  // After a run: the same plan once more, for data that are written anew, and random numbers of
  // another seed. False: another backend has to be prepared for that.
  virtual bool restart(uint64_t /*seed*/) { return false; }
  // After `restart`, with the inputs written: runs the plan once and keeps its calls of the
  // libraries, for `run_bare`. Why there are none; empty: they are kept.
  virtual llvm::Expected<std::string> prepare_bare() {
    return std::string("this backend computes by itself");
  }
  // The plan by those calls alone, without what watches them: no step is noted, so no rank that is
  // lost is noticed.
  virtual llvm::Error run_bare() { return make_error("no bare calls are kept"); }
};

struct CpuOptions {
  Domain domain = Domain::Declared;
  uint64_t seed = 0;         // of the random numbers that the program draws
  unsigned threads = 1;      // ranks are divided among them; results do not depend on it
  bool check_memory = false; // each access is held against the offsets of the plan
  Peers *peers = nullptr; // the rank of this process alone, among those of others; null: all ranks
};
// All ranks in this process, in lockstep; or one of them.
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions &options = {});
// Does nothing, step by step; reads are refused. What a step costs besides its work.
std::unique_ptr<Backend> make_null_backend();

} // namespace spmd::runtime
