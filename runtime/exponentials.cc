// exp(x) = 2^k exp(r) with |r| <= ln 2 / 2: a polynomial for r, whose remainder is below 2^-57, and k into
// the exponent. Where some number of a block is so large, or so small, that 2^k is no normal number, the
// library does the block.
#include "runtime/exponentials.h"

#include "runtime/wide_loops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace spmd::runtime {

namespace {

constexpr double kLog2E = 0x1.71547652b82fep+0;
// ln 2 in two parts, the first of which has room for a product with k.
constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
// Added and taken off, it leaves a whole number; meanwhile that stands in the last bits.
constexpr double kWhole = 0x1.8p52;
constexpr double kMost = 700;

constexpr double inverse_factorial(int n) { return n < 2 ? 1 : inverse_factorial(n - 1) / n; }

inline double small_exponential(double x) {
  double shifted = x * kLog2E + kWhole;
  double k = shifted - kWhole;
  double r = (x - k * kLn2High) - k * kLn2Low;
  double p = inverse_factorial(13);
  p = p * r + inverse_factorial(12);
  p = p * r + inverse_factorial(11);
  p = p * r + inverse_factorial(10);
  p = p * r + inverse_factorial(9);
  p = p * r + inverse_factorial(8);
  p = p * r + inverse_factorial(7);
  p = p * r + inverse_factorial(6);
  p = p * r + inverse_factorial(5);
  p = p * r + inverse_factorial(4);
  p = p * r + inverse_factorial(3);
  p = p * r + 0.5;
  // 1 + r + r^2 p: what is small is added first.
  double tail = r + r * r * p;
  uint64_t power = (std::bit_cast<uint64_t>(shifted) + 1023) << 52;
  return (1 + tail) * std::bit_cast<double>(power);
}

SPMD_WIDE_LOOP void small_exponentials(const double *from, double minus, double *__restrict to,
                                       size_t n) {
  for (size_t i = 0; i < n; ++i)
    to[i] = small_exponential(from[i] - minus);
}

// Whether all numbers are; NaN is not.
SPMD_WIDE_LOOP bool all_small(const double *from, double minus, size_t n) {
  uint64_t beyond = 0;
  for (size_t i = 0; i < n; ++i)
    beyond += std::abs(from[i] - minus) <= kMost ? 0 : 1;
  return beyond == 0;
}

} // namespace

void exponentials(const double *from, double minus, double *to, size_t n) {
  constexpr size_t kBlock = 64;
  for (size_t first = 0; first < n; first += kBlock) {
    size_t size = std::min(kBlock, n - first);
    if (all_small(from + first, minus, size)) {
      double block[kBlock];
      small_exponentials(from + first, minus, block, size);
      std::copy_n(block, size, to + first);
    } else
      for (size_t i = first; i < first + size; ++i)
        to[i] = std::exp(from[i] - minus);
  }
}

} // namespace spmd::runtime
