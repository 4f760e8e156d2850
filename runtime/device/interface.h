// What `spmdrun` and a plug-in for devices agree on: a table of C functions and plain data. A
// process has one device and one rank. What is queued goes on in the order of its stream; nothing
// that queues waits. backends/nccl.cc is the one for NVIDIA's; tests/device/fake.cc does the same
// with threads.
#pragma once

#include "runtime/backends/plugin.h"

extern "C" {

inline constexpr uint32_t kSpmdDeviceAbi = 2;

struct SpmdDevice;            // of the plug-in
using SpmdAddress = uint64_t; // of memory of the device; 0: none

// In the order of ir::DType.
enum SpmdElement : uint32_t {
  kSpmdNoElement,
  kSpmdBool,
  kSpmdI8,
  kSpmdI16,
  kSpmdI32,
  kSpmdI64,
  kSpmdU8,
  kSpmdU16,
  kSpmdU32,
  kSpmdU64,
  kSpmdF8E4M3,
  kSpmdF8E5M2,
  kSpmdBF16,
  kSpmdF16,
  kSpmdF32,
  kSpmdF64,
  kSpmdC64,
  kSpmdC128,
};

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

inline constexpr uint32_t kSpmdLoops = 8;

// Elements that are copied; loops, outermost first.
struct SpmdMove {
  uint32_t bytes; // of an element: 1, 2, 4, 8, 16
  uint32_t loops;
  int64_t extents[kSpmdLoops];
  SpmdAddress from, to;
  int64_t from_strides[kSpmdLoops], to_strides[kSpmdLoops]; // in elements
};

// An array that a loop nest reads or writes, from its first element on. One of kSpmdNoElement
// has no data: its numbers are the iteration numbers themselves, 0, 1, 2, ...
struct SpmdArray {
  SpmdAddress data;
  uint32_t element;
  // Place in SpmdLoopNest::in of an array of whole numbers that say where along one dimension this
  // one is read (none: ~0), counted from `begin`: `stride` elements for each. What lies outside of
  // [0, extent) counts as 0.
  uint32_t index;
  int64_t stride, extent, begin;
  int64_t strides[kSpmdLoops]; // in elements, per loop
};

// What a scalar program does. Numbers are doubles, whatever the elements are.
enum SpmdOp : uint8_t {
  kSpmdInput,    // a: of array a
  kSpmdConstant, // a: of constant a
  kSpmdSelect,   // a != 0 ? b : c
  kSpmdAdd,
  kSpmdSub,
  kSpmdMul,
  kSpmdDiv,
  kSpmdMulOrZero, // a == 0 ? 0 : a * b
  kSpmdLess,
  kSpmdLessEqual,
  kSpmdEqual,
  kSpmdIsNan, // 1 or 0
  kSpmdNeg,
  kSpmdAbs,
  kSpmdFloor,
  kSpmdCeil,
  kSpmdTrunc,
  kSpmdExp,
  kSpmdExp2,
  kSpmdExpm1,
  kSpmdLog,
  kSpmdLog2,
  kSpmdLog10,
  kSpmdLog1p,
  kSpmdSqrt,
  kSpmdCbrt,
  kSpmdSin,
  kSpmdCos,
  kSpmdTan,
  kSpmdAsin,
  kSpmdAcos,
  kSpmdAtan,
  kSpmdSinh,
  kSpmdCosh,
  kSpmdTanh,
  kSpmdAsinh,
  kSpmdAcosh,
  kSpmdAtanh,
  kSpmdErf,
  kSpmdErfc,
  kSpmdPow,
  kSpmdAtan2,
  kSpmdHypot,
  kSpmdFmod,
  kSpmdCopysign,
  kSpmdRound, // a, to the element b (a kind of element, no step)
  kSpmdOps
};

struct SpmdScalarStep {
  uint8_t op, a, b, c; // numbers of earlier steps, unless `op` says otherwise
};
inline constexpr uint32_t kSpmdArrays = 6, kSpmdSteps = 128, kSpmdConstants = 32;

enum SpmdCombiner : uint32_t { kSpmdSum, kSpmdAvg, kSpmdMax, kSpmdMin, kSpmdProd };

// For each place of the outer loops: what the program makes of the arrays, combined over the inner
// ones.
struct SpmdLoopNest {
  uint32_t loops, inner; // of all loops the last `inner` are combined
  int64_t extents[kSpmdLoops];
  uint32_t arrays;
  SpmdArray in[kSpmdArrays];
  SpmdArray out;          // no index; its strides along inner loops are not used
  uint32_t combiner;      // SpmdSum, Max, Min, Prod; NaN wins over any number
  uint32_t adds;          // to what `out` has, before it is rounded
  double factor, divisor; // of what was combined: times, over
  uint32_t steps, constants;
  SpmdScalarStep program[kSpmdSteps]; // the last one is the result
  double numbers[kSpmdConstants];
};

// out = factor * a b, for each of a batch; strides in elements, of which one per matrix is 1.
struct SpmdMatrices {
  uint32_t element, out_element; // floats
  uint32_t adds;                 // to `out`; the product may be rounded to its element before
  int64_t batch, rows, columns, inner;
  SpmdAddress a, b, out;
  int64_t a_row, a_inner, a_batch;
  int64_t b_inner, b_column, b_batch;
  int64_t out_row, out_column, out_batch;
  double factor;
};

// Where the keys of each row stand once they are in order: equal ones as before, 0 and -0 are
// equal, NaN behind all numbers (first if `descending`).
struct SpmdSort {
  uint32_t element, descending;
  int64_t rows, length; // of less than 2^31 keys in all
  SpmdAddress keys;
  int64_t row_stride, stride; // in elements, from row to row and from key to key
  SpmdAddress order; // U32: rows x length, place in the row of the first one, the second one, ...
  SpmdAddress room;  // spmd_sort_room(rows * length) bytes to work with, aligned to 64
};
inline constexpr uint64_t spmd_sort_room(uint64_t keys) { return 32 * keys + (1 << 20); }

enum SpmdScatterForm : uint32_t { kSpmdAddRows, kSpmdReplaceRows };
// Entry i, which is `width` elements, goes to row row_numbers[i] of `to`: added to what is there,
// all those of one row in an order that the data decide, and rounded once; or in its place, where
// the last entry stands. Row numbers outside of [0, rows) are left out.
struct SpmdScatter {
  uint32_t form, row_element;
  int64_t entries, width;  // fewer than 2^31 entries
  SpmdAddress row_numbers; // whole numbers, one after another
  // AddRows: U32, the entries by ascending row number, as SpmdSort orders them. ReplaceRows: 4
  // bytes for each row of `to`, to work with.
  SpmdAddress order;
  SpmdAddress from, to;
  uint32_t from_element, to_element;
  int64_t from_entry, from_stride; // in elements, from entry to entry and within one
  int64_t rows, to_row, to_stride;
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
