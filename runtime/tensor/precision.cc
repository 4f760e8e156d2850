// Rounding goes through an array of floats: what is stored as a float has been rounded to one.
#include "runtime/tensor/precision.h"

#include "runtime/tensor/f32_cache.h"
#include "runtime/tensor/wide_loops.h"

#include <algorithm>

namespace spmd::runtime {

SPMD_WIDE_LOOP void to_floats(const double *from, float *to, size_t n) {
  for (size_t i = 0; i < n; ++i)
    to[i] = static_cast<float>(from[i]);
}

SPMD_WIDE_LOOP void to_doubles(const float *from, double factor, double *to, size_t n) {
  for (size_t i = 0; i < n; ++i)
    to[i] = factor * static_cast<double>(from[i]);
}

void round_to_floats(double *cells, size_t n) {
  constexpr size_t kBlock = 1024; // stays in the nearest cache
  float block[kBlock];
  for (size_t first = 0; first < n; first += kBlock) {
    size_t size = std::min(kBlock, n - first);
    to_floats(cells + first, block, size);
    to_doubles(block, 1, cells + first, size);
  }
}

const float *F32Cache::of(const double *cells, int64_t size) {
  std::lock_guard lock(making_);
  if (!made_) {
    cells_.resize(static_cast<size_t>(size));
    to_floats(cells, cells_.data(), cells_.size());
    made_ = true;
  }
  return cells_.data();
}

} // namespace spmd::runtime
