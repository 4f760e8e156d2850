// What a call of `spmdrun` comes to: how many claims of each kind were upheld, and how they were
// tried.
#pragma once

#include "runtime/cli/bench.h"
#include "runtime/judge/run/judged_run.h"

#include <string>

namespace spmd::runtime {

struct Summary {
  std::string program;
  uint64_t ranks = 0, steps = 0;
  int64_t peak_bytes = 0; // of one rank
  bool backward = false;
  unsigned runs = 0;
  uint64_t seed = 0, seeds = 1;            // the first one, and how many
  llvm::SmallVector<std::string, 3> tiers; // in order, each once
  std::vector<std::string> losses;    // what the loss of one device is, where ranks have their own
  std::optional<RunTimes> times = {}; // of `--bench`
  RunReport report = {};

  void note_tier(Tier tier, Domain domain);
  // Every claim that can be checked, one at least, and every gradient that was recorded.
  bool all_upheld() const;
};

// A table, a row for each kind, and why what is open is open.
std::string print_summary(const Summary &summary, const ir::Program &program);
// What of it is open: claims that nothing decided, gradients that were not compared. Empty:
// nothing.
std::string print_open(const Summary &summary, const ir::Program &program);
// The same for programs, in JSON, claim by claim.
std::string print_verdicts(const Summary &summary, const ir::Program &program);

// By its name, with or without `%`; not valid: there is none.
ir::ValueId find_value(const ir::Program &program, llvm::StringRef name);

// Keeps verdicts and findings of values that are made in scopes which match the glob. Empty, or
// what is wrong with it.
std::string only_scope(const ir::Program &program, const std::string &glob, RunReport &report);

} // namespace spmd::runtime
