// Sums of products of two arrays that run through contiguously; in a fixed order.
#pragma once

#include "runtime/tensor/tensor.h"

namespace spmd::runtime {

inline double dot(const double *a, const double *b, int64_t n) {
  double sums[4] = {0, 0, 0, 0}; // so that it vectorises
  int64_t k = 0;
  for (; k + 4 <= n; k += 4)
    for (int j = 0; j < 4; ++j)
      sums[j] += a[k + j] * b[k + j];
  for (; k < n; ++k)
    sums[0] += a[k] * b[k];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}
inline Complex dot(const Complex *a, const Complex *b, int64_t n) {
  Complex sum = 0;
  for (int64_t k = 0; k < n; ++k)
    sum += a[k] * b[k];
  return sum;
}
// Products of residues are below 2^122, so that 63 of them fit into 128 bits.
inline Residue dot(const Residue *a, const Residue *b, int64_t n) {
  constexpr int64_t kBlock = 63;
  Residue sum;
  for (int64_t first = 0; first < n; first += kBlock) {
    unsigned __int128 wide = 0;
    for (int64_t k = first; k < std::min(first + kBlock, n); ++k)
      wide += static_cast<unsigned __int128>(a[k].value()) * b[k].value();
    auto low = static_cast<uint64_t>(wide) & Residue::kPrime;
    auto middle = static_cast<uint64_t>(wide >> 61) & Residue::kPrime;
    auto high = static_cast<uint64_t>(wide >> 122);
    sum += Residue::from_bits(low) + Residue::from_bits(middle) + Residue::from_bits(high);
  }
  return sum;
}

} // namespace spmd::runtime
