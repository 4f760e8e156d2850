// exp, and what the normal distribution makes of it, of many numbers, as wide as the machine has
// vectors.
#pragma once

#include <cstddef>

namespace spmd::runtime {

// to[i] = exp(from[i] - minus), within two units in the last place, the same on every machine. May
// be done in place.
void exponentials(const double *from, double minus, double *to, size_t n);

// The standard normal distribution: below[i], its share below x[i], and density[i]. Both to 3e-14
// of themselves; those of the library where a number is beyond 16, or NaN.
void normal_distribution(const double *x, double *below, double *density, size_t n);

} // namespace spmd::runtime
