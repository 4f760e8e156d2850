// The elements of a tensor as floats, for products of matrices in single precision: made when they
// are first asked for, by whichever thread, and kept until the tensor changes.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace spmd::runtime {

class F32Cache {
public:
  // `cells`: all elements of the tensor that it belongs to.
  const float *of(const double *cells, int64_t size);
  // No thread may use them any more.
  void clear() { made_ = false; }

private:
  std::mutex making_;
  bool made_ = false;
  std::vector<float> cells_;
};

// An array of doubles of which floats are kept; null: of none.
struct F32Source {
  F32Cache *kept = nullptr;
  int64_t size = 0;
};

} // namespace spmd::runtime
