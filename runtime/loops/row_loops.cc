// Each function is compiled for every vector width; its loop is inlined into it.
#include "runtime/loops/row_loops.h"

#include "runtime/tensor/wide_loops.h"

#include <limits>

namespace spmd::runtime {

namespace {

constexpr size_t kParts = 8;

inline double together(const double *parts) {
  return ((parts[0] + parts[1]) + (parts[2] + parts[3])) +
         ((parts[4] + parts[5]) + (parts[6] + parts[7]));
}

// Inlined where a function is compiled for each width.
template <class F> __attribute__((always_inline)) inline double sum_up(size_t n, F term) {
  double parts[kParts] = {};
  size_t i = 0;
  for (; i + kParts <= n; i += kParts)
    for (size_t k = 0; k < kParts; ++k)
      parts[k] += term(i + k);
  for (; i < n; ++i)
    parts[0] += term(i);
  return together(parts);
}

} // namespace

SPMD_WIDE_LOOP double row_sum(const double *x, size_t n) {
  return sum_up(
      n, [=](size_t i) __attribute__((always_inline)) { return x[i]; });
}
SPMD_WIDE_LOOP double row_dot(const double *a, const double *b, size_t n) {
  return sum_up(
      n, [=](size_t i) __attribute__((always_inline)) { return a[i] * b[i]; });
}
SPMD_WIDE_LOOP double row_squares(const double *x, double mean, size_t n) {
  return sum_up(
      n, [=](size_t i) __attribute__((always_inline)) {
        double away = x[i] - mean;
        return away * away;
      });
}

SPMD_WIDE_LOOP double row_largest(const double *x, size_t n) {
  double most[kParts];
  for (double &part : most)
    part = -std::numeric_limits<double>::infinity();
  size_t i = 0;
  for (; i + kParts <= n; i += kParts)
    for (size_t k = 0; k < kParts; ++k)
      most[k] = most[k] < x[i + k] ? x[i + k] : most[k];
  for (; i < n; ++i)
    most[0] = most[0] < x[i] ? x[i] : most[0];
  for (size_t k = 1; k < kParts; ++k)
    most[0] = most[0] < most[k] ? most[k] : most[0];
  return most[0];
}

SPMD_WIDE_LOOP void scale_row(const double *a, double factor, double *to, size_t n) {
  for (size_t i = 0; i < n; ++i)
    to[i] = factor * a[i];
}
SPMD_WIDE_LOOP void multiply_rows(const double *a, const double *b, double *to, size_t n) {
  for (size_t i = 0; i < n; ++i)
    to[i] = a[i] * b[i];
}
SPMD_WIDE_LOOP void add_rows(const double *a, const double *b, double *to, size_t n) {
  for (size_t i = 0; i < n; ++i)
    to[i] = a[i] + b[i];
}
SPMD_WIDE_LOOP void add_row(const double *a, double *to, size_t n) {
  for (size_t i = 0; i < n; ++i)
    to[i] += a[i];
}
SPMD_WIDE_LOOP void add_products(const double *a, const double *b, double *to, size_t n) {
  for (size_t i = 0; i < n; ++i)
    to[i] += a[i] * b[i];
}

} // namespace spmd::runtime
