// The words of CUDA that kernels of loop nests use, for a host: a block is a row of fibers that
// take turns wherever they meet.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#define __device__
#define __global__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(threads)

namespace spmd::test {

struct Dim3 {
  unsigned x = 0;
};
// Of the fiber that runs.
extern Dim3 thread_index, block_index, grid_size;
void meet(); // until all threads of the block are there
// Runs a kernel, one block after another.
void launch(void (*kernel)(const void *), const void *arguments, unsigned blocks, unsigned threads);

} // namespace spmd::test

#define threadIdx (spmd::test::thread_index)
#define blockIdx (spmd::test::block_index)
#define gridDim (spmd::test::grid_size)
#define __syncthreads spmd::test::meet

// NOLINTBEGIN(readability-identifier-naming): words of CUDA
inline float __int_as_float(int bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline int __float_as_int(float value) {
  int bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float __double2float_rz(double value) {
  const auto nearest = static_cast<float>(value);
  return std::fabs(static_cast<double>(nearest)) > std::fabs(value) ? std::nextafterf(nearest, 0.0f)
                                                                    : nearest;
}
// NOLINTEND(readability-identifier-naming)
