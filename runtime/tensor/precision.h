// Loops between doubles and floats, as wide as the machine has them.
#pragma once

#include <cstddef>

namespace spmd::runtime {

void to_floats(const double *from, float *to, size_t n);
// to[i] = factor * from[i]
void to_doubles(const float *from, double factor, double *to, size_t n);
// Each to the nearest float, ties to even.
void round_to_floats(double *cells, size_t n);

} // namespace spmd::runtime
