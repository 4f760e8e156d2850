// Loops over a row of numbers that lies in one piece, as wide as the machine has vectors. Sums are
// of eight parts, in the same order on every machine.
#pragma once

#include <cstddef>

namespace spmd::runtime {

double row_sum(const double *x, size_t n);
double row_dot(const double *a, const double *b, size_t n);
// Of (x[i] - mean)^2.
double row_squares(const double *x, double mean, size_t n);
// -inf for none; NaN are left out.
double row_largest(const double *x, size_t n);

// to[i] = factor a[i]; a[i] b[i]; a[i] + b[i]: may be done in place.
void scale_row(const double *a, double factor, double *to, size_t n);
void multiply_rows(const double *a, const double *b, double *to, size_t n);
void add_rows(const double *a, const double *b, double *to, size_t n);
// to[i] += a[i]; to[i] += a[i] b[i]
void add_row(const double *a, double *to, size_t n);
void add_products(const double *a, const double *b, double *to, size_t n);

} // namespace spmd::runtime
