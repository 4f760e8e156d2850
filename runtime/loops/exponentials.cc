// exp(x) = 2^k exp(r) with |r| <= ln 2 / 2: a polynomial for r, whose remainder is below 2^-57, and
// k into the exponent. Where some number of a block is so large, or so small, that 2^k is no normal
// number, the library does the block; but what is far below all numbers, as scores that are masked,
// is 0.
//
// The share of the normal distribution below -z is exp(-z^2/2) / 2 times erfcx(y), y = z / sqrt(2).
// Of that, (1 + 2 y) erfcx(y) is smooth in t = (y - 4) / (y + 4): a polynomial, which interpolates
// it at the Chebyshev points of 0 <= y <= 11.4 and is off by less than 2e-16.
#include "runtime/loops/exponentials.h"

#include "runtime/tensor/wide_loops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>

namespace spmd::runtime {

namespace {

constexpr double kLog2E = 0x1.71547652b82fep+0;
// ln 2 in two parts, the first of which has room for a product with k.
constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
// Added and taken off, it leaves a whole number; meanwhile that stands in the last bits.
constexpr double kWhole = 0x1.8p52;
constexpr double kMost = 700;
constexpr double kVanishes = -746; // exp is 0 below it

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
  for (size_t i = 0; i < n; ++i) {
    double x = from[i] - minus, power = small_exponential(x < kVanishes ? 0 : x);
    to[i] = x < kVanishes ? 0 : power;
  }
}

// Whether all are of normal powers, or vanish.
SPMD_WIDE_LOOP bool all_common(const double *from, double minus, size_t n) {
  uint64_t beyond = 0;
  for (size_t i = 0; i < n; ++i) {
    double x = from[i] - minus;
    beyond += ((std::abs(x) <= kMost) | (x < kVanishes)) ? 0 : 1;
  }
  return beyond == 0;
}
// Whether all numbers are at most `most`; NaN is not.
SPMD_WIDE_LOOP bool all_small(const double *from, double most, size_t n) {
  uint64_t beyond = 0;
  for (size_t i = 0; i < n; ++i)
    beyond += std::abs(from[i]) <= most ? 0 : 1;
  return beyond == 0;
}

constexpr double kFarOut = 16, kHalfRootTwo = 0x1.6a09e667f3bcdp-1;
constexpr double kRootTwoPi = 0x1.40d931ff62706p+1;
// (1 + 2 y) erfcx(y) in powers of t, the highest first.
constexpr double kTail[] = {
    -0x1.0c38eb2cae2a2p-22, -0x1.2a672b754d803p-20, 0x1.7c02c4c15abbcp-22, 0x1.90568ec438194p-18,
    -0x1.751e5009a3da3p-17, -0x1.9a81faa5b21ecp-16, 0x1.3bc1e9536e67ap-13, -0x1.a1dce7da50e88p-13,
    -0x1.8d48e62a84f05p-11, 0x1.49c677eddbb80p-8,   -0x1.09623a1ab50d0p-6, 0x1.3079edd37ac6ep-5,
    -0x1.0fb06df7f5c1cp-4,  0x1.7fee004f4e3c2p-4,   -0x1.9ddb23c41be6cp-4, 0x1.16ecefcf9c7c1p-4,
    0x1.f7f5df6702acep-7,   -0x1.1df1ad154a207p-3,  0x1.3ba5916e9fd7ep+0};

SPMD_WIDE_LOOP void near_normal(const double *x, double *__restrict below,
                                double *__restrict density, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    double y = std::abs(x[i]) * kHalfRootTwo, sum = y + 4, slope = 1 + 2 * y;
    double inverse = 1 / (sum * slope), t = (y - 4) * slope * inverse;
    double p = kTail[0];
#pragma GCC unroll 32
    for (size_t k = 1; k < std::size(kTail); ++k)
      p = p * t + kTail[k];
    double power = small_exponential(-0.5 * x[i] * x[i]);
    double tail = 0.5 * power * p * (sum * inverse), rest = 1 - tail;
    below[i] = x[i] < 0 ? tail : rest;
    density[i] = power / kRootTwoPi;
  }
}

} // namespace

void normal_distribution(const double *x, double *below, double *density, size_t n) {
  if (all_small(x, kFarOut, n))
    return near_normal(x, below, density, n);
  for (size_t i = 0; i < n; ++i) {
    below[i] = 0.5 * std::erfc(-x[i] * kHalfRootTwo);
    density[i] = std::exp(-0.5 * x[i] * x[i]) / kRootTwoPi;
  }
}

void exponentials(const double *from, double minus, double *to, size_t n) {
  constexpr size_t kBlock = 64;
  for (size_t first = 0; first < n; first += kBlock) {
    size_t size = std::min(kBlock, n - first);
    if (all_common(from + first, minus, size)) {
      double block[kBlock];
      small_exponentials(from + first, minus, block, size);
      std::copy_n(block, size, to + first);
    } else
      for (size_t i = first; i < first + size; ++i)
        to[i] = std::exp(from[i] - minus);
  }
}

} // namespace spmd::runtime
