// Sums of exponentials without overflow, and what follows from them.
#pragma once

#include "runtime/number.h"

namespace spmd::runtime {

// log of the sum of exp(x[i]), i < n; -inf for none. X: anything with elements T.
template <class X> auto log_sum_exp(const X &x, int64_t n) {
  using T = std::decay_t<decltype(x[0])>;
  double most = -kInfinity;
  for (int64_t i = 0; i < n; ++i)
    most = larger(most, plain(x[i]));
  if (std::isinf(most) || std::isnan(most))
    return T(most);
  T sum = 0.0;
  for (int64_t i = 0; i < n; ++i)
    sum += exp(x[i] - most);
  return T(most + log(sum));
}

} // namespace spmd::runtime
