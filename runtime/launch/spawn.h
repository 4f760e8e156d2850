// `--nproc`: starts the ranks of a run on this host, and waits for them.
#pragma once

#include <cstdint>

#include <string>
#include <vector>

namespace spmd::runtime {

struct SpawnOptions {
  uint32_t count = 1;
  std::vector<std::string> words; // of the command line, without `--nproc`
  bool by_mpirun = false;         // the ranks are for MPI to know of
  unsigned join_timeout = 30;     // seconds, after which mpirun must have started some rank
  bool skip_unavailable = false;  // without mpirun: 77
};

// Set for ranks whose output goes on to a terminal.
inline constexpr const char *kTerminal = "SPMD_TERMINAL";

// The exit code of the run, 3 if a rank was ended from outside, 5 if mpirun failed or was ended
// (said). Ranks are children and end with this process, however it ends. Says what keeps it from
// starting them (2, or 77).
int spawn_ranks(const SpawnOptions &options);

} // namespace spmd::runtime
