// Special functions of real numbers that the C++ library lacks. Outside of a function's domain: NaN.
#pragma once

#include "runtime/tensor/residue.h"

namespace spmd::runtime {

double digamma(double x);
// The n-th derivative of digamma, n >= 1.
double polygamma(int n, double x);
// Hurwitz: the sum over k >= 0 of (k + q)^-s, s > 1, q > 0.
double zeta(double s, double q);
double erfinv(double y);
// The inverse of the distribution of the standard normal.
double ndtri(double p);
double erfcx(double x);    // exp(x^2) erfc(x)
double log_ndtr(double x); // of the standard normal
// Regularised incomplete gamma functions, lower and upper; a > 0, x >= 0.
double igamma(double a, double x);
double igammac(double a, double x);
// Regularised incomplete beta function; a, b > 0, 0 <= x <= 1.
double betainc(double a, double b, double x);
// Modified Bessel functions of the first kind, scaled by exp(-|x|); Bessel functions.
double i0e(double x);
double i1e(double x);
double bessel_j0(double x);
double bessel_j1(double x);

} // namespace spmd::runtime
