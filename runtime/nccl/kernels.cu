// Moves, products of matrices that cuBLASLt does not take, and marks. Loops that are one loop in
// memory are made one before anything is launched: an index costs a division for each.
#include "runtime/commands/scalar.h"
#include "runtime/nccl/kernels.h"

#include <cuda.h>

#include <algorithm>
#include <utility>

namespace spmd::nccl {
namespace {

constexpr int64_t kThreads = 256, kBlocks = 1 << 16; // loops of kernels take what is more

int64_t blocks_for(int64_t count) { return std::min((count + kThreads - 1) / kThreads, kBlocks); }

// --- moves
// ----------------------------------------------------------------------------------------------

template <class Index>
__device__ __forceinline__ void copied_offsets(const SpmdMove &move, Index place, int64_t &from,
                                               int64_t &to) {
#pragma unroll
  for (int l = kSpmdLoops - 1; l >= 0; --l) {
    if (l >= static_cast<int>(move.loops))
      continue;
    Index at = place;
    if (l > 0) {
      const auto extent = static_cast<Index>(move.extents[l]);
      place /= extent;
      at -= place * extent;
    }
    from += static_cast<int64_t>(at) * move.from_strides[l];
    to += static_cast<int64_t>(at) * move.to_strides[l];
  }
}

template <class T, class Index>
__global__ void __launch_bounds__(kThreads)
    copy(const __grid_constant__ SpmdMove move, int64_t count) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t place = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; place < count;
       place += step) {
    int64_t from = 0, to = 0;
    copied_offsets(move, static_cast<Index>(place), from, to);
    reinterpret_cast<T *>(move.to)[to] = reinterpret_cast<const T *>(move.from)[from];
  }
}

template <class T>
cudaError_t launch_copy(const SpmdMove &move, int64_t count, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(blocks_for(count));
  if (count <= int64_t(UINT32_MAX))
    copy<T, uint32_t><<<blocks, kThreads, 0, stream>>>(move, count);
  else
    copy<T, uint64_t><<<blocks, kThreads, 0, stream>>>(move, count);
  return cudaGetLastError();
}

// Loops of one place are left out, and two that run on in both arrays become one.
SpmdMove joined(const SpmdMove &move) {
  SpmdMove made = move;
  made.loops = 0;
  for (uint32_t l = 0; l < move.loops; ++l) {
    if (move.extents[l] == 1)
      continue;
    const uint32_t last = made.loops - 1;
    if (made.loops > 0 && made.from_strides[last] == move.from_strides[l] * move.extents[l] &&
        made.to_strides[last] == move.to_strides[l] * move.extents[l]) {
      made.extents[last] *= move.extents[l];
      made.from_strides[last] = move.from_strides[l];
      made.to_strides[last] = move.to_strides[l];
      continue;
    }
    made.extents[made.loops] = move.extents[l];
    made.from_strides[made.loops] = move.from_strides[l];
    made.to_strides[made.loops] = move.to_strides[l];
    ++made.loops;
  }
  return made;
}

// Elements twice as wide, where the last loop runs on in both arrays and everything else is even.
bool widen(SpmdMove &move) {
  if (move.loops == 0 || move.bytes >= 16)
    return false;
  const uint32_t last = move.loops - 1;
  if (move.from_strides[last] != 1 || move.to_strides[last] != 1 || move.extents[last] % 2 ||
      (move.from | move.to) % (2 * move.bytes))
    return false;
  for (uint32_t l = 0; l < last; ++l)
    if (move.from_strides[l] % 2 || move.to_strides[l] % 2)
      return false;
  for (uint32_t l = 0; l < last; ++l) {
    move.from_strides[l] /= 2;
    move.to_strides[l] /= 2;
  }
  move.bytes *= 2;
  move.extents[last] /= 2;
  return true;
}

// Two loops of which one runs on where it is read, the other one where it is written.
struct TransposedLoops {
  uint32_t read = 0, written = 0;
};
bool is_transposed(const SpmdMove &move, TransposedLoops &turned) {
  constexpr int64_t kLeast = 16; // of both: else most of a tile is empty
  turned.read = turned.written = move.loops;
  for (uint32_t l = 0; l < move.loops; ++l) {
    if (move.from_strides[l] == 1 && move.extents[l] >= kLeast)
      turned.read = l;
    if (move.to_strides[l] == 1 && move.extents[l] >= kLeast)
      turned.written = l;
  }
  return turned.read < move.loops && turned.written < move.loops && turned.read != turned.written;
}

// By tiles that are read along one loop and written along the other: threads side by side touch
// what lies side by side, both times, `kWidth` elements at once.
template <class T, int kWidth> struct alignas(sizeof(T) * kWidth) Vector { T at[kWidth]; };
template <int kWidth> constexpr int kSide = kWidth > 1 ? 64 : 32; // of a tile

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    copy_turned(const __grid_constant__ SpmdMove move, TransposedLoops turned, uint32_t tiles) {
  using Cells = Vector<T, kWidth>;
  constexpr int side = kSide<kWidth>, across = side / kWidth, down = kThreads / across;
  __shared__ T cells[side][side + 1];
  const auto columns = static_cast<uint32_t>((move.extents[turned.read] + side - 1) / side);
  const auto rows = static_cast<uint32_t>((move.extents[turned.written] + side - 1) / side);
  const int x = static_cast<int>(threadIdx.x) % across * kWidth;
  const int y = static_cast<int>(threadIdx.x) / across;
  for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t first = int64_t(tile % columns) * side,
                  second = int64_t(tile / columns % rows) * side;
    const int64_t from_step = move.from_strides[turned.written],
                  to_step = move.to_strides[turned.read];
    int64_t from = first + second * from_step + x, to = second + first * to_step + x;
    uint32_t rest = tile / columns / rows;
    for (uint32_t l = move.loops; l-- > 0;) {
      if (l == turned.read || l == turned.written)
        continue;
      const auto extent = static_cast<uint32_t>(move.extents[l]);
      const int64_t at = rest % extent;
      rest /= extent;
      from += at * move.from_strides[l];
      to += at * move.to_strides[l];
    }
    const int64_t width = move.extents[turned.read] - first;
    const int64_t height = move.extents[turned.written] - second;
    Cells read[side / down];
#pragma unroll
    for (int i = 0; i < side / down; ++i) {
      const int row = y + i * down;
      if (x < width && row < height)
        read[i] = *reinterpret_cast<const Cells *>(reinterpret_cast<const T *>(move.from) + from +
                                                   row * from_step);
    }
#pragma unroll
    for (int i = 0; i < side / down; ++i)
      for (int v = 0; v < kWidth; ++v)
        cells[y + i * down][x + v] = read[i].at[v];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < side / down; ++i) {
      const int row = y + i * down;
      Cells written;
      for (int v = 0; v < kWidth; ++v)
        written.at[v] = cells[x + v][row];
      if (x < height && row < width)
        *reinterpret_cast<Cells *>(reinterpret_cast<T *>(move.to) + to + row * to_step) = written;
    }
    __syncthreads();
  }
}

// Whether vectors of so many elements are aligned where they are read and written.
bool is_aligned(const SpmdMove &move, TransposedLoops turned, int64_t width) {
  if ((move.from | move.to) % (width * move.bytes) || move.extents[turned.read] % width ||
      move.extents[turned.written] % width)
    return false;
  for (uint32_t l = 0; l < move.loops; ++l)
    if ((l != turned.read && move.from_strides[l] % width) ||
        (l != turned.written && move.to_strides[l] % width))
      return false;
  return true;
}

template <class T, int kWidth>
cudaError_t launch_tiles(const SpmdMove &move, TransposedLoops turned, cudaStream_t stream) {
  constexpr int64_t side = kSide<kWidth>;
  const int64_t read = move.extents[turned.read], written = move.extents[turned.written];
  const int64_t tiles = (read + side - 1) / side * ((written + side - 1) / side) *
                        (device::iterations(move.extents, 0, move.loops) / read / written);
  if (tiles > int64_t(UINT32_MAX))
    return cudaErrorInvalidValue; // more memory than there is
  copy_turned<T, kWidth><<<static_cast<unsigned>(std::min(tiles, kBlocks)), kThreads, 0, stream>>>(
      move, turned, static_cast<uint32_t>(tiles));
  return cudaGetLastError();
}

template <class T>
cudaError_t launch_turned(const SpmdMove &move, TransposedLoops turned, cudaStream_t stream) {
  constexpr int widest = 16 / sizeof(T);
  return is_aligned(move, turned, widest) ? launch_tiles<T, widest>(move, turned, stream)
                                          : launch_tiles<T, 1>(move, turned, stream);
}

// --- matrices
// -------------------------------------------------------------------------------------------

constexpr int kTile = 16;

__global__ void __launch_bounds__(kTile *kTile)
    multiply(const __grid_constant__ SpmdMatrices m, int64_t row_tiles, int64_t column_tiles) {
  using device::load;
  __shared__ double left[kTile][kTile + 1], right[kTile][kTile + 1];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int64_t tiles = m.batch * row_tiles * column_tiles;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t batch = tile / (row_tiles * column_tiles);
    const int64_t row = tile / column_tiles % row_tiles * kTile + y;
    const int64_t column = tile % column_tiles * kTile + x;
    double sum = 0;
    for (int64_t k = 0; k < m.inner; k += kTile) {
      left[y][x] =
          row < m.rows && k + x < m.inner
              ? load(m.a, m.element, batch * m.a_batch + row * m.a_row + (k + x) * m.a_inner)
              : 0;
      right[y][x] =
          column < m.columns && k + y < m.inner
              ? load(m.b, m.element, batch * m.b_batch + (k + y) * m.b_inner + column * m.b_column)
              : 0;
      __syncthreads();
      for (int i = 0; i < kTile; ++i)
        sum = fma(left[y][i], right[i][x], sum);
      __syncthreads();
    }
    if (row < m.rows && column < m.columns) {
      const int64_t place = batch * m.out_batch + row * m.out_row + column * m.out_column;
      double value = m.factor * sum;
      if (m.adds)
        value += load(m.out, m.out_element, place);
      device::store(m.out, m.out_element, place, value);
    }
  }
}

// --- marks
// ----------------------------------------------------------------------------------------------

__global__ void mark(uint64_t *where, uint64_t value) {
  *static_cast<volatile uint64_t *>(where) = value;
  __threadfence_system();
}

// By the stream itself, which takes less than a kernel; null where the driver has no such call.
using WriteValue = CUresult(CUDAAPI *)(CUstream, CUdeviceptr, cuuint64_t, unsigned);
WriteValue find_write_value() {
  void *function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuStreamWriteValue64", &function,
                                                             12000, cudaEnableDefault, &found);
  if (error == cudaSuccess && found == cudaDriverEntryPointSuccess)
    return reinterpret_cast<WriteValue>(function);
  cudaGetLastError();
  return nullptr;
}

} // namespace

cudaError_t find_kernels() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, mark);
}

cudaError_t queue_move(const SpmdMove &asked, cudaStream_t stream) {
  if (device::iterations(asked.extents, 0, asked.loops) == 0)
    return cudaSuccess;
  SpmdMove move = joined(asked);
  const int64_t count = device::iterations(move.extents, 0, move.loops);
  if (move.loops == 0 || (move.loops == 1 && move.from_strides[0] == 1 && move.to_strides[0] == 1))
    return cudaMemcpyAsync(
        reinterpret_cast<void *>(move.to), reinterpret_cast<const void *>(move.from),
        static_cast<size_t>(count) * move.bytes, cudaMemcpyDeviceToDevice, stream);
  if ((move.from | move.to) % move.bytes)
    return cudaErrorMisalignedAddress;
  if (TransposedLoops turned; is_transposed(move, turned))
    switch (move.bytes) {
    case 1:
      return launch_turned<uint8_t>(move, turned, stream);
    case 2:
      return launch_turned<uint16_t>(move, turned, stream);
    case 4:
      return launch_turned<uint32_t>(move, turned, stream);
    case 8:
      return launch_turned<uint64_t>(move, turned, stream);
    default:
      break;
    }
  while (widen(move)) {
  }
  const int64_t wide = device::iterations(move.extents, 0, move.loops);
  switch (move.bytes) {
  case 1:
    return launch_copy<uint8_t>(move, wide, stream);
  case 2:
    return launch_copy<uint16_t>(move, wide, stream);
  case 4:
    return launch_copy<uint32_t>(move, wide, stream);
  case 8:
    return launch_copy<uint64_t>(move, wide, stream);
  case 16:
    return launch_copy<uint4>(move, wide, stream);
  default:
    return cudaErrorInvalidValue;
  }
}

cudaError_t queue_matrices(const SpmdMatrices &matrices, cudaStream_t stream) {
  const int64_t row_tiles = (matrices.rows + kTile - 1) / kTile;
  const int64_t column_tiles = (matrices.columns + kTile - 1) / kTile;
  const int64_t tiles = matrices.batch * row_tiles * column_tiles;
  if (tiles == 0)
    return cudaSuccess;
  multiply<<<static_cast<unsigned>(std::min(tiles, kBlocks)), dim3(kTile, kTile), 0, stream>>>(
      matrices, row_tiles, column_tiles);
  return cudaGetLastError();
}

cudaError_t queue_mark(uint64_t *where, uint64_t value, cudaStream_t stream) {
  static const WriteValue write = find_write_value();
  if (write && write(stream, reinterpret_cast<CUdeviceptr>(where), value,
                     CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS)
    return cudaSuccess;
  mark<<<1, 1, 0, stream>>>(where, value);
  return cudaGetLastError();
}

} // namespace spmd::nccl
