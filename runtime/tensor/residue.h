// Whole numbers modulo the prime 2^61 - 1: the exact numbers of `--tier=field`, where `+` and `*`
// are those of a field, so that a claim that is false shows whatever the order of summation.
#pragma once

#include <cstdint>

namespace spmd::runtime {

class Residue {
public:
  static constexpr uint64_t kPrime = (uint64_t(1) << 61) - 1;

  constexpr Residue() = default;
  constexpr Residue(int64_t number)
      : value_(number >= 0 ? reduce(static_cast<uint64_t>(number))
                           : kPrime - reduce(static_cast<uint64_t>(-number))) {
    value_ = value_ == kPrime ? 0 : value_;
  }
  // Any 64 bits, for residues that are drawn.
  static constexpr Residue from_bits(uint64_t bits) {
    Residue made;
    made.value_ = reduce(bits);
    return made;
  }

  constexpr uint64_t value() const { return value_; } // below kPrime
  // The representative nearest to 0: what an index, a count or a truth value is.
  constexpr int64_t number() const {
    return value_ > kPrime / 2 ? -static_cast<int64_t>(kPrime - value_)
                               : static_cast<int64_t>(value_);
  }

  friend constexpr Residue operator+(Residue a, Residue b) {
    uint64_t sum = a.value_ + b.value_;
    return raw(sum >= kPrime ? sum - kPrime : sum);
  }
  friend constexpr Residue operator-(Residue a) { return raw(a.value_ ? kPrime - a.value_ : 0); }
  friend constexpr Residue operator-(Residue a, Residue b) { return a + -b; }
  friend constexpr Residue operator*(Residue a, Residue b) {
    unsigned __int128 product = static_cast<unsigned __int128>(a.value_) * b.value_;
    uint64_t low = static_cast<uint64_t>(product) & kPrime;
    uint64_t high = static_cast<uint64_t>(product >> 61);
    return raw(low) + raw(high);
  }
  // 0 for 0, which has none.
  constexpr Residue inverse() const {
    Residue result = 1, base = *this;
    for (uint64_t exponent = kPrime - 2; exponent; exponent >>= 1, base = base * base)
      if (exponent & 1)
        result = result * base;
    return result;
  }
  constexpr Residue &operator+=(Residue other) { return *this = *this + other; }
  constexpr Residue &operator*=(Residue other) { return *this = *this * other; }
  friend constexpr bool operator==(Residue, Residue) = default;

private:
  static constexpr uint64_t reduce(uint64_t bits) {
    uint64_t sum = (bits & kPrime) + (bits >> 61);
    return sum >= kPrime ? sum - kPrime : sum;
  }
  static constexpr Residue raw(uint64_t value) {
    Residue made;
    made.value_ = value;
    return made;
  }
  uint64_t value_ = 0;
};

// A finite double is a whole number times a power of 2, which the field has. What is not finite
// becomes some fixed residue.
Residue residue_of(double number);

} // namespace spmd::runtime
