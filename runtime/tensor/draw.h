// Random numbers without state: a draw is a hash of a key and of the place that it is drawn for, so
// that a block draws what the whole would have there.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace spmd::runtime {

// Bits of which each depends on all bits of `x`: one-to-one.
constexpr uint64_t scrambled(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
constexpr uint64_t joined(uint64_t key, uint64_t word) { return scrambled(key ^ scrambled(word)); }

// The draws for one place, one after another.
class Draw {
public:
  Draw(uint64_t key, uint64_t place) : key_(joined(key, place)) {}

  uint64_t bits() { return joined(key_, next_++); }
  // In [0, 1), of 53 bits.
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  // In (0, 1).
  double inner() { return (static_cast<double>(bits() >> 11) + 0.5) * 0x1p-53; }
  double normal() {
    double radius = std::sqrt(-2 * std::log(inner()));
    return radius * std::cos(6.283185307179586 * uniform());
  }
  double exponential() { return -std::log(inner()); }
  // Of mean `rate`; sums of smaller ones.
  double poisson(double rate);
  // Of shape `a` and scale 1.
  double gamma(double a);

private:
  uint64_t key_, next_ = 0;
};

} // namespace spmd::runtime
