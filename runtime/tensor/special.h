// Special functions of real numbers that the C++ library lacks. Outside of a function's domain:
// NaN.
#pragma once

#include "runtime/tensor/residue.h"

namespace spmd::runtime {

double digamma(double x);
// The n-th derivative of digamma, n >= 1.
double polygamma(int n, double x);
// Hurwitz: the sum over k >= 0 of (k + q)^-s, s > 1, q > 0.
double zeta(double s, double q);
double erfinv(double y);

} // namespace spmd::runtime
