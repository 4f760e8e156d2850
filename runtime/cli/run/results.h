// What a call leaves behind once its runs are done: traces, profiles, times, findings, a table of
// verdicts.
#pragma once

#include "runtime/cli/run/seed_runs.h"

namespace spmd::runtime {

class Results {
public:
  Results(const RunOptions &options, PlannedProgram &planned, SeedRuns &runs, Reporter &reporter,
          Ranks &ranks, Summary &summary)
      : options_(options), planned_(planned), runs_(runs), reporter_(reporter), ranks_(ranks),
        summary_(summary) {}

  void write();

private:
  void write_trace();
  void write_profile();
  void run_bench();
  void write_verdicts();
  bool restrict_to_scope();
  bool fails_on_warnings() const;
  void print_table();
  template <class Times, class Time> std::optional<Times> measured(Time time);

  const RunOptions &options_;
  PlannedProgram &planned_;
  SeedRuns &runs_;
  Reporter &reporter_;
  Ranks &ranks_;
  Summary &summary_;
};

} // namespace spmd::runtime
