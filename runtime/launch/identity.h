// Which rank of how many this process is, as whoever started it says in the environment.
#pragma once

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <string>

namespace spmd::runtime {

enum class Launcher : uint8_t { None, Torchrun, Slurm, Mpirun }; // None: nobody says anything

struct Identity {
  Launcher launcher = Launcher::None;
  uint32_t rank = 0, size = 1;
  uint32_t local_rank = 0, local_size = 1; // on this host
  // Of the store on rank 0.
  std::string host; // empty: nobody says
  uint16_t port = 0;
  std::string token;
  int listener = -1; // a socket that listens already, for rank 0
};

using Environment = llvm::function_ref<const char *(const char *name)>;

// RANK and its kin (torchrun, --nproc), then Slurm's, then those of mpirun. An error names the
// variable that is missing or is no number.
llvm::Expected<Identity> identity_of(Environment environment);
// `node[003-006,9],other`: `node003`
std::string first_host(llvm::StringRef node_list);

} // namespace spmd::runtime
