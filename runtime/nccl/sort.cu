// Sorts and scatters. Short rows are sorted by counting, each key against all of its row; long ones
// by the radix sort of CUB, all rows at once: by key, and then by row, which keeps what is equal in
// its order. Rows that are added go one after another to the threads of a block, as their sorted
// positions say, so that sums are the same in each run.
#include "runtime/commands/scalar.h"
#include "runtime/nccl/kernels.h"

#include <algorithm>
#include <cub/device/device_radix_sort.cuh>

namespace spmd::nccl {
namespace {

using device::load;
using device::order_key;
using device::scatter_row;

constexpr int kThreads = 256;
constexpr int64_t kBlocks = 1 << 16;
constexpr int64_t kCounted = 1024; // keys of a row that is sorted by counting

unsigned blocks_for(int64_t count) {
  return static_cast<unsigned>(std::clamp<int64_t>((count + kThreads - 1) / kThreads, 1, kBlocks));
}

// --- sorts
// ----------------------------------------------------------------------------------------------

__global__ void __launch_bounds__(kThreads) sort_by_counting(const SpmdSort sort) {
  __shared__ uint64_t keys[kCounted];
  const auto length = static_cast<int>(sort.length);
  auto *order = reinterpret_cast<uint32_t *>(sort.order);
  for (int64_t row = blockIdx.x; row < sort.rows; row += gridDim.x) {
    for (int i = static_cast<int>(threadIdx.x); i < length; i += kThreads)
      keys[i] = order_key(load(sort.keys, sort.element, row * sort.row_stride + i * sort.stride),
                          sort.descending);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < length; i += kThreads) {
      const uint64_t own = keys[i];
      int before = 0;
      for (int k = 0; k < length; ++k)
        before += keys[k] < own || (keys[k] == own && k < i);
      order[row * sort.length + before] = static_cast<uint32_t>(i);
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads)
    make_keys(const SpmdSort sort, uint64_t *keys, uint32_t *values) {
  const int64_t count = sort.rows * sort.length, step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < count;
       at += step) {
    const int64_t row = at / sort.length, i = at % sort.length;
    keys[at] = order_key(load(sort.keys, sort.element, row * sort.row_stride + i * sort.stride),
                         sort.descending);
    values[at] = static_cast<uint32_t>(at);
  }
}

__global__ void __launch_bounds__(kThreads)
    rows_as_keys(const uint32_t *values, int64_t count, int64_t length, uint64_t *keys) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < count;
       at += step)
    keys[at] = static_cast<uint64_t>(values[at] / length);
}

__global__ void __launch_bounds__(kThreads)
    columns_in_rows(const uint32_t *values, int64_t count, int64_t length, uint32_t *order) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < count;
       at += step)
    order[at] = static_cast<uint32_t>(values[at] % length);
}

cudaError_t radix_sort(const SpmdSort &sort, cudaStream_t stream) {
  const int64_t count = sort.rows * sort.length;
  const auto padded = static_cast<uint64_t>((count + 7) / 8 * 8);
  auto *first = reinterpret_cast<char *>(sort.room);
  cub::DoubleBuffer<uint64_t> keys(reinterpret_cast<uint64_t *>(first),
                                   reinterpret_cast<uint64_t *>(first + 8 * padded));
  cub::DoubleBuffer<uint32_t> values(reinterpret_cast<uint32_t *>(first + 16 * padded),
                                     reinterpret_cast<uint32_t *>(first + 20 * padded));
  const uint64_t used = 24 * padded,
                 room = spmd_sort_workspace_bytes(static_cast<uint64_t>(count)) - used;
  void *work = first + used;
  int row_bits = 0;
  while (sort.rows > int64_t(1) << row_bits)
    ++row_bits;
  make_keys<<<blocks_for(count), kThreads, 0, stream>>>(sort, keys.Current(), values.Current());
  for (bool by_row : {false, true}) {
    if (by_row && row_bits == 0)
      break;
    if (by_row)
      rows_as_keys<<<blocks_for(count), kThreads, 0, stream>>>(values.Current(), count, sort.length,
                                                               keys.Current());
    const int bits = by_row ? row_bits : 64;
    size_t asked = 0;
    cudaError_t error = cub::DeviceRadixSort::SortPairs(nullptr, asked, keys, values,
                                                        static_cast<int>(count), 0, bits, stream);
    if (error == cudaSuccess && asked > room)
      error = cudaErrorMemoryAllocation;
    if (error == cudaSuccess)
      error = cub::DeviceRadixSort::SortPairs(work, asked, keys, values, static_cast<int>(count), 0,
                                              bits, stream);
    if (error != cudaSuccess)
      return error;
  }
  columns_in_rows<<<blocks_for(count), kThreads, 0, stream>>>(
      values.Current(), count, sort.length, reinterpret_cast<uint32_t *>(sort.order));
  return cudaGetLastError();
}

// --- scatters
// -------------------------------------------------------------------------------------------

// A block for each run of one place. Threads lie along the entries of a run and, side by side,
// along what is added.
__global__ void __launch_bounds__(kThreads) add_runs(const SpmdScatter scatter, int columns) {
  __shared__ double sums[kThreads];
  const auto *order = reinterpret_cast<const uint32_t *>(scatter.order);
  const int lanes = kThreads / columns, x = static_cast<int>(threadIdx.x) % columns,
            lane = static_cast<int>(threadIdx.x) / columns;
  for (int64_t first = blockIdx.x; first < scatter.entries; first += gridDim.x) {
    const int64_t place = scatter_row(scatter, order[first]);
    if (place < 0 || place >= scatter.rows ||
        (first > 0 && scatter_row(scatter, order[first - 1]) == place))
      continue; // the same for all threads
    int64_t last = first + 1, beyond = scatter.entries;
    while (last < beyond) {
      const int64_t middle = (last + beyond) / 2;
      if (scatter_row(scatter, order[middle]) == place)
        last = middle + 1;
      else
        beyond = middle;
    }
    for (int64_t from = 0; from < scatter.width; from += columns) {
      const int64_t column = from + x;
      double sum = 0;
      if (column < scatter.width)
        for (int64_t i = first + lane; i < last; i += lanes)
          sum += load(scatter.from, scatter.from_element,
                      order[i] * scatter.from_entry + column * scatter.from_stride);
      sums[threadIdx.x] = sum;
      __syncthreads();
      for (int half = lanes / 2; half > 0; half /= 2) {
        if (lane < half)
          sums[threadIdx.x] += sums[threadIdx.x + half * columns];
        __syncthreads();
      }
      if (lane == 0 && column < scatter.width) {
        const int64_t to = place * scatter.to_row + column * scatter.to_stride;
        device::store(scatter.to, scatter.to_element, to,
                      load(scatter.to, scatter.to_element, to) + sums[threadIdx.x]);
      }
      __syncthreads();
    }
  }
}

// The number of the last entry for each row, 1 and more; 0: none.
__global__ void __launch_bounds__(kThreads) find_last(const SpmdScatter scatter) {
  auto *last = reinterpret_cast<uint32_t *>(scatter.order);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t entry = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       entry < scatter.entries; entry += step)
    if (const int64_t place = scatter_row(scatter, entry); place >= 0 && place < scatter.rows)
      atomicMax(last + place, static_cast<uint32_t>(entry) + 1);
}

__global__ void __launch_bounds__(kThreads) replace_rows(const SpmdScatter scatter) {
  const auto *last = reinterpret_cast<const uint32_t *>(scatter.order);
  const int64_t count = scatter.entries * scatter.width,
                step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < count;
       at += step) {
    const int64_t entry = at / scatter.width, column = at % scatter.width;
    const int64_t place = scatter_row(scatter, entry);
    if (place < 0 || place >= scatter.rows || last[place] != static_cast<uint32_t>(entry) + 1)
      continue;
    device::store(scatter.to, scatter.to_element,
                  place * scatter.to_row + column * scatter.to_stride,
                  load(scatter.from, scatter.from_element,
                       entry * scatter.from_entry + column * scatter.from_stride));
  }
}

} // namespace

cudaError_t queue_sort(const SpmdSort &sort, cudaStream_t stream) {
  const int64_t count = sort.rows * sort.length;
  if (count == 0)
    return cudaSuccess;
  if (count >= int64_t(1) << 31)
    return cudaErrorInvalidValue;
  if (sort.length > kCounted)
    return radix_sort(sort, stream);
  sort_by_counting<<<static_cast<unsigned>(std::min(sort.rows, kBlocks)), kThreads, 0, stream>>>(
      sort);
  return cudaGetLastError();
}

cudaError_t queue_scatter(const SpmdScatter &scatter, cudaStream_t stream) {
  if (scatter.entries == 0 || scatter.width == 0)
    return cudaSuccess;
  if (scatter.form == kSpmdAddRows) {
    int columns = 1;
    while (columns < kThreads && columns < scatter.width)
      columns *= 2;
    // Few entries for each row want threads side by side, one wide row leaves none for its entries.
    columns = std::min(columns, kThreads / 4);
    add_runs<<<static_cast<unsigned>(std::min(scatter.entries, kBlocks)), kThreads, 0, stream>>>(
        scatter, columns);
    return cudaGetLastError();
  }
  const cudaError_t error = cudaMemsetAsync(reinterpret_cast<void *>(scatter.order), 0,
                                            static_cast<size_t>(scatter.rows) * 4, stream);
  if (error != cudaSuccess)
    return error;
  find_last<<<blocks_for(scatter.entries), kThreads, 0, stream>>>(scatter);
  replace_rows<<<blocks_for(scatter.entries * scatter.width), kThreads, 0, stream>>>(scatter);
  return cudaGetLastError();
}

} // namespace spmd::nccl
