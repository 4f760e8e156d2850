// The command line of `spmdrun`: a table of its own options on top of those of `spmdlint check`,
// which say how the program is read, judged and reported.
#pragma once

#include "checker/cli/options.h"
#include "runtime/backends/table.h"
#include "runtime/judge/run/options.h"

#include <optional>
#include <string>
#include <vector>

namespace spmd::runtime {

// Auto: field, then real.
enum class TierChoice : uint8_t { Auto, Field, Real, Integer };
inline constexpr std::string_view kTierChoiceWords[] = {"auto", "field", "real", "integer"};

// One axis of the mesh that the command line names.
struct AxisSize {
  std::string axis;
  int64_t size = 1;
};

struct RunOptions {
  checker::Options shared;
  std::string file;
  std::vector<AxisSize> mesh;
  std::vector<std::pair<std::string, int64_t>> symbols;
  bool scale_down = false;
  bool plan = false;
  uint64_t seed = 0;
  unsigned seeds = 1;
  CheckMode check = CheckMode::Outputs;
  unsigned drawn = 0; // of CheckMode::SampleCount: how many steps
  TierChoice tier = TierChoice::Auto;
  bool f64 = false;
  bool strict = false;
  uint64_t max_rounds = kMaxRounds; // of one `while`
  LossChoice losses = LossChoice::Auto;
  unsigned threads = 1;
  std::string only, until; // a glob over scopes; a value
  std::vector<std::string> inputs;
  std::string trace_out;
  std::string verdicts;
  std::string profile;
  unsigned bench = 0; // runs that are timed
  bool trace_ranks = false;
  std::optional<uint64_t> memory_limit; // bytes
  const BackendRow *backend = &kStandardBackend;
  unsigned nproc = 0;         // ranks to start; 0: this process is one, or all
  unsigned timeout = 60;      // seconds that a rank may keep others waiting
  unsigned join_timeout = 30; // seconds until all ranks are there
  bool graphs = false, no_graphs = false;
  bool deterministic = false;
  bool skip_unavailable = false;
  bool no_backward = false;
  bool help = false, version = false;
};

// Whether steps are recorded and replayed. A recording takes as long as a few runs: unless the call
// says otherwise, it takes three runs.
inline bool records_steps(const RunOptions &options) {
  return options.backend->records && !options.no_graphs &&
         (options.graphs || uint64_t(options.seeds) + options.bench >= 3);
}

// Empty, or what is wrong with the call.
std::string parse_run_call(llvm::ArrayRef<llvm::StringRef> words, RunOptions &options);
// The command line of a rank that `--nproc` starts.
std::vector<std::string> rank_arguments(llvm::ArrayRef<llvm::StringRef> words,
                                        const RunOptions &options);
// What the data of a run depend on, as words of a command line.
std::string data_arguments(const RunOptions &options, uint64_t seed);
// The same, and all else that every rank must be given.
std::string common_arguments(const RunOptions &options);
std::string run_help();

} // namespace spmd::runtime
