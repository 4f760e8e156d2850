// What a device can be told to do, as plain data of C: moves, loop nests around a scalar program,
// products of matrices, sorts, scatters. Kernels and equations are lowered to it; a plug-in for
// devices carries it out (device/interface.h).
#pragma once

#include <cstdint>

extern "C" {

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
  uint32_t combiner;      // kSpmdSum, kSpmdMax, kSpmdMin, kSpmdProd; NaN wins over any number
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
  SpmdAddress room;  // spmd_sort_workspace_bytes(rows * length) bytes to work with, aligned to 64
};
inline constexpr uint64_t spmd_sort_workspace_bytes(uint64_t keys) { return 32 * keys + (1 << 20); }

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

} // extern "C"
