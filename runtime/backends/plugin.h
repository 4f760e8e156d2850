// What `spmdrun` and a plug-in agree on: a table of C functions and plain data, so that neither
// CUDA nor MPI is linked into the tool. A plug-in links nothing of ours, throws nothing across this
// border, and keeps one rank per process. backends/mpi.cc is the one to copy.
#pragma once

#include <cstdint>

extern "C" {

// Raised when a field changes its meaning. Fields are only ever appended: `bytes` says how many are
// there.
inline constexpr uint32_t kSpmdPluginAbi = 1;

enum SpmdCode : int32_t {
  kSpmdOk = 0,
  kSpmdRefused = 2, // nothing has been run: the machine or the call is not as needed
  kSpmdFailed = 3,  // a run began and cannot be finished
  kSpmdStopped = 4, // given up because SpmdHost::stopped said so
};
struct SpmdStatus {
  int32_t code;
  char text[252]; // one sentence, with the next step where there is one
};

// What a plug-in may ask of the tool.
struct SpmdHost {
  uint32_t bytes;
  void *self;
  // To be asked again and again by whatever waits, some hundred times a millisecond at most. Not 0:
  // return kSpmdStopped at once; nothing more will be asked of this plug-in but `close`.
  int (*stopped)(void *self);
};

// In: what the launcher said, size 0 where it said nothing. Out: what the library knows.
struct SpmdRanks {
  uint32_t rank, size;
  uint32_t local_rank, local_size; // among those of this host
};

// Bytes to or from one rank, by its position in the group.
struct SpmdSend {
  uint32_t position;
  const void *data;
  uint64_t bytes;
};
struct SpmdReceive {
  uint32_t position;
  void *data;
  uint64_t bytes;
};

struct SpmdPeers; // of the plug-in: this rank among the others

inline constexpr uint32_t kSpmdNoColour = ~0u;
inline constexpr uint32_t kSpmdAllRanks = 0; // the group of all ranks, by rank

struct SpmdPlugin {
  uint32_t abi, bytes;
  const char *name;
  // Once per process, first.
  SpmdStatus (*open)(const SpmdHost *host, SpmdRanks *ranks, SpmdPeers **peers);
  // The bytes of rank 0 reach all ranks. Used once, before the store is joined, to say where it is.
  SpmdStatus (*share)(SpmdPeers *peers, void *data, uint64_t bytes);
  // Ranks of one colour become a group, in the order of their keys; kSpmdNoColour: in none. All
  // ranks call it, in the same order.
  SpmdStatus (*split)(SpmdPeers *peers, uint32_t colour, uint32_t key, uint32_t *group);
  // `all`: what each position gives, one after another; `bytes[i]` of position i.
  SpmdStatus (*all_gather)(SpmdPeers *peers, uint32_t group, const void *own, void *all,
                           const uint64_t *bytes);
  // What one rank sends to another is received by it in the same call, in the same order. Ranks
  // that neither send nor receive need not call it. None is to or from the rank itself.
  SpmdStatus (*exchange)(SpmdPeers *peers, uint32_t group, const SpmdSend *sends,
                         uint32_t send_count, const SpmdReceive *receives, uint32_t receive_count);
  // Once, last. `finish` 0: leave without waiting for anybody.
  SpmdStatus (*close)(SpmdPeers *peers, int32_t finish);
};

// The only symbol that a plug-in exports.
const SpmdPlugin *spmd_plugin(void);

} // extern "C"
