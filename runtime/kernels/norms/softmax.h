// Sums of exponentials without overflow, and what follows from them.
#pragma once

#include "runtime/loops/exponentials.h"
#include "runtime/loops/row_loops.h"
#include "runtime/tensor/number.h"

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

// p[i] = exp(x[i] - most), for the largest x, and their sum. False, and nothing of worth in p,
// where the largest is not finite or a number is NaN.
template <class X>
bool less_largest(const X &x, int64_t n, std::vector<double> &p, double &most, double &sum) {
  p.resize(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    p[static_cast<size_t>(i)] = x[i];
  most = row_largest(p.data(), p.size());
  if (!std::isfinite(most) || std::isnan(row_sum(p.data(), p.size())))
    return false;
  exponentials(p.data(), most, p.data(), p.size());
  sum = row_sum(p.data(), p.size());
  return true;
}
// log_sum_exp; p: room.
template <class X, class T> T log_sum_exp(const X &x, int64_t n, std::vector<T> &p) {
  double most = 0, sum = 0;
  if constexpr (std::is_same_v<T, double>)
    if (less_largest(x, n, p, most, sum))
      return most + std::log(sum);
  return log_sum_exp(x, n);
}
// p[i] = exp(x[i]) over the sum of all.
template <class X, class T> void softmax_of(const X &x, int64_t n, std::vector<T> &p) {
  double most = 0, sum = 0;
  if constexpr (std::is_same_v<T, double>)
    if (less_largest(x, n, p, most, sum))
      return scale_row(p.data(), 1 / sum, p.data(), p.size());
  T log = log_sum_exp(x, n);
  p.resize(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    p[static_cast<size_t>(i)] = exp(x[i] - log);
}

} // namespace spmd::runtime
