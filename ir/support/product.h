// Products of counts and extents that nothing has bounded yet.
#pragma once

#include <cstdint>

namespace spmd::ir {

// a * b; INT64_MAX where that does not fit in 64 bits. Both are at least 0.
inline int64_t saturating_product(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? INT64_MAX : result;
}

} // namespace spmd::ir
