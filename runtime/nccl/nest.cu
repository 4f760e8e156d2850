// Loop nests around a scalar program, which scalar.h carries out step by step: small ones, since
// large ones have kernels of their own (compiled_nests.h). No product and sum become one, so that
// numbers are those of a processor but for its functions. The program lies in the parameters of the
// kernel, which all threads read.
#include "runtime/commands/scalar.h"
#include "runtime/nccl/compiled_nests.h"
#include "runtime/nccl/kernels.h"

#include <algorithm>

namespace spmd::nccl {
namespace {

using device::combined;
using device::iterations;
using device::neutral;

constexpr int64_t kMostThreads = 256, kBlocks = 1 << 16;
constexpr int64_t kShort = 32;          // fewer iterations that are combined: by one thread
constexpr int64_t kManyOuter = 1 << 16; // enough for a thread each
constexpr int64_t kPart =
    4096; // iterations of a block at least, before there are several for one result
constexpr int64_t kInterpretedParts = 4096; // of all results, at most

template <class Index>
__device__ __forceinline__ void spread(const int64_t *extents, uint32_t first, uint32_t last,
                                       Index place, int64_t *at) {
  for (uint32_t l = last; l-- > first;) {
    if (l == first) { // no division for the outermost one
      at[l] = static_cast<int64_t>(place);
      break;
    }
    const auto extent = static_cast<Index>(extents[l]);
    const Index over = place / extent;
    at[l] = static_cast<int64_t>(place - over * extent);
    place = over;
  }
}
// As device::unravel, with narrow divisions where they do.
__device__ __forceinline__ void coordinates(const int64_t *extents, uint32_t first, uint32_t last,
                                            int64_t place, int64_t *at) {
  if (place <= int64_t(UINT32_MAX))
    spread(extents, first, last, static_cast<uint32_t>(place), at);
  else
    spread(extents, first, last, static_cast<uint64_t>(place), at);
}

// One after another, as a processor combines them.
__global__ void __launch_bounds__(kMostThreads)
    nest_by_thread(const __grid_constant__ SpmdLoopNest nest, int64_t outer, int64_t inner) {
  const uint32_t split = nest.loops - nest.inner;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t place = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; place < outer;
       place += step) {
    int64_t at[kSpmdLoops];
    coordinates(nest.extents, 0, split, place, at);
    double value = neutral(nest.combiner);
    for (int64_t i = 0; i < inner; ++i) {
      coordinates(nest.extents, split, nest.loops, i, at);
      const double next = device::evaluate_at(nest, at);
      value = i == 0 ? next : combined(nest.combiner, value, next);
    }
    device::finish(nest, at, value);
  }
}

// A block for each part of each result, and a tree of its threads. With more than one part they
// meet in `partial`.
__global__ void __launch_bounds__(kMostThreads)
    nest_by_block(const __grid_constant__ SpmdLoopNest nest, int64_t outer, int64_t inner,
                  int64_t parts, double *partial) {
  __shared__ double values[kMostThreads];
  const uint32_t split = nest.loops - nest.inner;
  for (int64_t block = blockIdx.x; block < outer * parts; block += gridDim.x) {
    const int64_t part = block % parts, end = inner * (part + 1) / parts;
    int64_t at[kSpmdLoops];
    coordinates(nest.extents, 0, split, block / parts, at);
    double value = neutral(nest.combiner);
    for (int64_t i = inner * part / parts + threadIdx.x; i < end; i += blockDim.x) {
      coordinates(nest.extents, split, nest.loops, i, at);
      value = combined(nest.combiner, value, device::evaluate_at(nest, at));
    }
    values[threadIdx.x] = value;
    __syncthreads();
    for (uint32_t half = blockDim.x / 2; half > 0; half /= 2) {
      if (threadIdx.x < half)
        values[threadIdx.x] =
            combined(nest.combiner, values[threadIdx.x], values[threadIdx.x + half]);
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      if (parts == 1)
        device::finish(nest, at, values[0]);
      else
        partial[block] = values[0];
    }
    __syncthreads();
  }
}

// `lanes` threads for each result, a power of two: each takes every so many of its parts, and a
// tree the rest.
__global__ void __launch_bounds__(kMostThreads)
    nest_of_parts(const __grid_constant__ SpmdLoopNest nest, int64_t outer, int64_t parts,
                  unsigned lanes, const double *partial) {
  __shared__ double values[kMostThreads];
  const unsigned lane = threadIdx.x % lanes;
  const int64_t place =
      static_cast<int64_t>(blockIdx.x) * (kMostThreads / lanes) + threadIdx.x / lanes;
  double value = neutral(nest.combiner);
#pragma unroll 8
  for (int64_t i = lane; i < (place < outer ? parts : 0); i += lanes)
    value = combined(nest.combiner, value, partial[place * parts + i]);
  values[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = lanes / 2; half > 0; half /= 2) {
    if (lane < half)
      values[threadIdx.x] =
          combined(nest.combiner, values[threadIdx.x], values[threadIdx.x + half]);
    __syncthreads();
  }
  if (place >= outer || lane > 0)
    return;
  int64_t at[kSpmdLoops];
  coordinates(nest.extents, 0, nest.loops - nest.inner, place, at);
  device::finish(nest, at, values[threadIdx.x]);
}

// Whether loop `l` runs on where loop `before` of `made` takes its steps, in all arrays.
bool runs_on(const SpmdLoopNest &made, uint32_t before, const SpmdLoopNest &nest, uint32_t l,
             bool outer) {
  const int64_t extent = nest.extents[l];
  for (uint32_t i = 0; i < nest.arrays; ++i)
    if (made.in[i].strides[before] != nest.in[i].strides[l] * extent)
      return false;
  return !outer || made.out.strides[before] == nest.out.strides[l] * extent;
}

// The same iterations in the same order, with as few loops as can be.
SpmdLoopNest joined(const SpmdLoopNest &nest) {
  SpmdLoopNest made = nest;
  made.loops = made.inner = 0;
  const uint32_t split = nest.loops - nest.inner;
  for (uint32_t l = 0; l < nest.loops; ++l) {
    if (nest.extents[l] == 1)
      continue;
    const bool outer = l < split;
    const uint32_t begun = outer ? made.loops : made.inner;
    const bool joins = begun > 0 && runs_on(made, made.loops - 1, nest, l, outer);
    const uint32_t at = joins ? made.loops - 1 : made.loops;
    made.extents[at] = joins ? made.extents[at] * nest.extents[l] : nest.extents[l];
    for (uint32_t i = 0; i < nest.arrays; ++i)
      made.in[i].strides[at] = nest.in[i].strides[l];
    made.out.strides[at] = nest.out.strides[l];
    made.loops += !joins;
    made.inner += !joins && !outer;
  }
  return made;
}

// Threads side by side read what lies side by side: over the outer loops where no array runs on
// along the inner ones.
bool better_by_thread(const SpmdLoopNest &nest, int64_t outer, int64_t inner) {
  if (inner < kShort)
    return true;
  if (outer < kManyOuter)
    return false;
  for (uint32_t i = 0; i < nest.arrays; ++i)
    if (nest.in[i].strides[nest.loops - 1] == 1)
      return false;
  return true;
}

} // namespace

cudaError_t queue_nest(const SpmdLoopNest &asked, double *scratch, cudaStream_t stream) {
  const SpmdLoopNest nest = joined(asked);
  const uint32_t split = nest.loops - nest.inner;
  const int64_t outer = iterations(nest.extents, 0, split);
  const int64_t inner = iterations(nest.extents, split, nest.loops);
  if (outer == 0)
    return cudaSuccess;
  auto combine_parts = [&](int64_t parts) {
    const int64_t lanes = parts > kMostThreads ? kMostThreads : kShort;
    const int64_t results = kMostThreads / lanes; // of a block
    nest_of_parts<<<static_cast<unsigned>((outer + results - 1) / results), kMostThreads, 0,
                    stream>>>(nest, outer, parts, static_cast<unsigned>(lanes), scratch);
    return cudaGetLastError();
  };
  CompiledNest compiled;
  if (inner > 0)
    if (const cudaError_t error = queue_compiled(nest, scratch, kScratchNumbers, stream, compiled);
        error != cudaSuccess || compiled.taken)
      return error != cudaSuccess || compiled.parts == 1 ? error : combine_parts(compiled.parts);
  if (better_by_thread(nest, outer, inner)) {
    const int64_t blocks = std::min((outer + kMostThreads - 1) / kMostThreads, kBlocks);
    nest_by_thread<<<static_cast<unsigned>(blocks), kMostThreads, 0, stream>>>(nest, outer, inner);
    return cudaGetLastError();
  }
  const int64_t parts =
      std::clamp(std::min(inner / kPart, kInterpretedParts / outer), int64_t(1), kInterpretedParts);
  int64_t threads = kMostThreads;
  while (threads > kShort && threads > inner / parts)
    threads /= 2;
  nest_by_block<<<static_cast<unsigned>(std::min(outer * parts, kBlocks)),
                  static_cast<unsigned>(threads), 0, stream>>>(nest, outer, inner, parts, scratch);
  const cudaError_t error = cudaGetLastError();
  return error != cudaSuccess || parts == 1 ? error : combine_parts(parts);
}

} // namespace spmd::nccl
