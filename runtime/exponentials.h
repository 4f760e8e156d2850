// exp of many numbers, as wide as the machine has vectors.
#pragma once

#include <cstddef>

namespace spmd::runtime {

// to[i] = exp(from[i] - minus), within two units in the last place, the same on every machine. May be
// done in place.
void exponentials(const double *from, double minus, double *to, size_t n);

} // namespace spmd::runtime
