// The runs of a call: each seed with each kind of numbers, until something is refuted.
#pragma once

#include "runtime/cli/run/planned_program.h"
#include "runtime/cli/summary.h"

namespace spmd::runtime {

class SeedRuns {
public:
  SeedRuns(const RunOptions &options, PlannedProgram &planned, Reporter &reporter, Ranks &ranks,
           Summary &summary)
      : options_(options), planned_(planned), reporter_(reporter), ranks_(ranks),
        summary_(summary) {}

  // All runs with this seed; what they found goes into the summary.
  void run(uint64_t seed);
  // The backend of the last run, with its inputs as they were; false, and said: it cannot be had.
  bool prepare_last() { return prepare(last_seed_, last_mode_); }
  Backend &backend() { return *backend_; }
  uint64_t last_seed() const { return last_seed_; }
  RunMode last_mode() const { return last_mode_; }

private:
  bool run(uint64_t seed, RunMode mode);
  JudgeOptions judge_options(uint64_t seed, RunMode mode) const;
  llvm::Expected<RunReport> timed_run(const JudgeOptions &judge);
  bool stop_at(llvm::Error error);
  bool stop_at_loop(llvm::Error error);
  bool prepare(uint64_t seed, RunMode mode);
  std::string rerun(uint64_t seed) const;

  const RunOptions &options_;
  PlannedProgram &planned_;
  Reporter &reporter_;
  Ranks &ranks_;
  Summary &summary_;
  std::unique_ptr<Backend> backend_; // of the last run
  RunMode last_mode_;
  uint64_t last_seed_ = 0;
};

} // namespace spmd::runtime
