// What `spmdrun` and a plug-in for devices agree on: a table of C functions and plain data. A
// process has one device and one rank. What is queued goes on in the order of its stream; nothing
// that queues waits. runtime/nccl is the one for NVIDIA's; tests/device/fake.cc does the same with
// threads.
#pragma once

#include "runtime/backends/plugin.h"
#include "runtime/commands/command.h"

extern "C" {

inline constexpr uint32_t kSpmdDeviceAbi = 2;

struct SpmdDevice; // of the plug-in

enum SpmdStream : uint32_t { kSpmdCompute, kSpmdCollectives };
inline constexpr uint32_t kSpmdStreams = 2;

struct SpmdDeviceFacts {
  char name[128];    // of the device
  char library[128]; // that goes between devices, with its version: the same on all ranks
  uint64_t free_bytes, total_bytes;
};

// That all ranks need to meet.
struct SpmdId {
  char bytes[128];
};

enum SpmdCollectiveForm : uint32_t {
  kSpmdAllReduce,
  kSpmdAllGather,
  kSpmdReduceScatter,
  kSpmdBroadcast
};
struct SpmdCollective {
  uint32_t form, group, combiner, root;
  uint32_t
      element; // I8, U8, I32, U32, I64, U64, F16, BF16, F32, F64; F8 only where nothing is added
  SpmdAddress operand, result; // apart, or one in the other in the place that NCCL lays down
  uint64_t count;              // elements: of the operand; of a ReduceScatter of the result
};

// Bytes to or from one position of a group, never the own one.
struct SpmdTransfer {
  uint32_t position;
  SpmdAddress data;
  uint64_t bytes;
};

struct SpmdDevicePlugin {
  uint32_t abi, bytes; // bytes = sizeof: fields are only ever appended
  const char *name;
  // Once per process, first: the device of this rank among those of the host. Code kSpmdRefused:
  // there is none.
  SpmdStatus (*open)(const SpmdHost *host, const SpmdRanks *ranks, SpmdDevice **device,
                     SpmdDeviceFacts *facts);
  // On rank 0.
  SpmdStatus (*make_id)(SpmdDevice *device, SpmdId *id);
  // All ranks, before any group or collective: group kSpmdAllRanks.
  SpmdStatus (*connect)(SpmdDevice *device, const SpmdId *id);
  // As SpmdPlugin::split.
  SpmdStatus (*split)(SpmdDevice *device, uint32_t colour, uint32_t key, uint32_t *group);
  // Memory, aligned to 512 bytes; kSpmdRefused: there is not so much. What is not released lives
  // until `close`.
  SpmdStatus (*allocate)(SpmdDevice *device, uint64_t bytes, SpmdAddress *address);
  // When all that was queued is done.
  SpmdStatus (*release)(SpmdDevice *device, SpmdAddress address);

  // Queued. Moves, loop nests and matrices: on kSpmdCompute; what goes between ranks: on
  // kSpmdCollectives.
  SpmdStatus (*move)(SpmdDevice *device, const SpmdMove *move);
  SpmdStatus (*nest)(SpmdDevice *device, const SpmdLoopNest *nest);
  SpmdStatus (*matrices)(SpmdDevice *device, const SpmdMatrices *matrices);
  SpmdStatus (*collective)(SpmdDevice *device, const SpmdCollective *collective);
  SpmdStatus (*exchange)(SpmdDevice *device, uint32_t group, const SpmdTransfer *sends,
                         uint32_t send_count, const SpmdTransfer *receives, uint32_t receive_count);
  // What `stream` is given from now on begins when all that `other` has by now is done.
  SpmdStatus (*follow)(SpmdDevice *device, uint32_t stream, uint32_t other);
  // What is given to either stream from now on is of this step of the plan.
  SpmdStatus (*begin)(SpmdDevice *device, uint32_t step);

  // These wait until all that was queued is done, and ask SpmdHost::stopped while they do.
  SpmdStatus (*put)(SpmdDevice *device, SpmdAddress to, const void *data, uint64_t bytes);
  SpmdStatus (*get)(SpmdDevice *device, void *data, SpmdAddress from, uint64_t bytes);
  SpmdStatus (*wait)(SpmdDevice *device);
  // The earliest step of which something is not done, as far as that is known; of any thread, while
  // another one waits.
  uint32_t (*reached)(SpmdDevice *device);
  // Once, last. `finish` 0: leave without waiting for anybody.
  SpmdStatus (*close)(SpmdDevice *device, int32_t finish);
  // Queued, on kSpmdCompute.
  SpmdStatus (*sort)(SpmdDevice *device, const SpmdSort *sort);
  SpmdStatus (*scatter)(SpmdDevice *device, const SpmdScatter *scatter);

  // Bytes of memory that nobody has, now.
  SpmdStatus (*free_bytes)(SpmdDevice *device, uint64_t *bytes);

  // Collectives and exchanges given in between are one batch: they may go on in any order and at
  // once, so none writes what another one reads or writes. Ranks that meet in one of them have the
  // same ones in the batch.
  SpmdStatus (*begin_batch)(SpmdDevice *device);
  SpmdStatus (*end_batch)(SpmdDevice *device);

  // What is queued on both streams from now on, `begin` and `follow` included, is recorded and not
  // carried out. Nothing that waits is called meanwhile, nor is memory asked for. kSpmdRefused:
  // nothing can be recorded here.
  SpmdStatus (*begin_record)(SpmdDevice *device);
  // kSpmdRefused: what was queued cannot be carried out as one, and is dropped.
  SpmdStatus (*end_record)(SpmdDevice *device, uint32_t *recording);
  // Queued: all of it, behind what both streams have by now and before what they are given later.
  SpmdStatus (*replay)(SpmdDevice *device, uint32_t recording);
  // When all that was queued is done.
  SpmdStatus (*forget)(SpmdDevice *device, uint32_t recording);

  // Before `make_id` and `connect`, on all ranks: what ranks hold is added up in an order that the
  // devices, the links between them and the libraries decide, and nothing else does.
  SpmdStatus (*fix_order)(SpmdDevice *device);

  // When all that was queued is done. 0: from now on nothing is noted of how far the streams are,
  // and `reached` says the step of the last `begin`; 1, as it is at first: it is noted again.
  SpmdStatus (*watch)(SpmdDevice *device, uint32_t on);
};

// The only symbol that such a plug-in exports.
const SpmdDevicePlugin *spmd_device_plugin(void);

} // extern "C"
