// Axes of one mesh as small integers, and sets of them as machine words with set algebra.
#pragma once

#include <bit>
#include <cstdint>

namespace spmd::ir {

inline constexpr unsigned kMaxAxes = 16;
inline constexpr unsigned kMaxDims = 15;

struct AxisId {
  uint8_t index = 0xFF;
  constexpr bool valid() const { return index != 0xFF; }
  friend constexpr bool operator==(AxisId, AxisId) = default;
};

class AxisSet {
public:
  constexpr AxisSet() = default;
  constexpr explicit AxisSet(uint16_t bits) : bits_(bits) {}
  // Of an id that is not valid: no axis.
  constexpr AxisSet(AxisId axis) : bits_(static_cast<uint16_t>(uint64_t{1} << (axis.index & 63))) {}

  constexpr uint16_t bits() const { return bits_; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr explicit operator bool() const { return bits_ != 0; }
  constexpr int size() const { return std::popcount(bits_); }
  constexpr bool contains(AxisId axis) const { return (uint64_t{bits_} >> (axis.index & 63)) & 1; }
  constexpr bool contains(AxisSet other) const { return (other.bits_ & ~bits_) == 0; }
  constexpr AxisId first() const { return {static_cast<uint8_t>(std::countr_zero(bits_))}; }

  friend constexpr AxisSet operator|(AxisSet a, AxisSet b) { return of(a.bits_ | b.bits_); }
  friend constexpr AxisSet operator&(AxisSet a, AxisSet b) { return of(a.bits_ & b.bits_); }
  friend constexpr AxisSet operator-(AxisSet a, AxisSet b) { return of(a.bits_ & ~b.bits_); }
  constexpr AxisSet operator~() const { return of(~bits_); }
  constexpr AxisSet &operator|=(AxisSet b) { return *this = *this | b; }
  constexpr AxisSet &operator&=(AxisSet b) { return *this = *this & b; }
  constexpr AxisSet &operator-=(AxisSet b) { return *this = *this - b; }
  friend constexpr bool operator==(AxisSet, AxisSet) = default;

  // Members in mesh order: for (AxisId axis : set).
  class Iterator {
  public:
    constexpr explicit Iterator(uint16_t bits) : bits_(bits) {}
    constexpr AxisId operator*() const { return AxisSet(bits_).first(); }
    constexpr Iterator &operator++() {
      bits_ = static_cast<uint16_t>(bits_ & (bits_ - 1));
      return *this;
    }
    friend constexpr bool operator==(Iterator, Iterator) = default;

  private:
    uint16_t bits_;
  };
  constexpr Iterator begin() const { return Iterator(bits_); }
  constexpr Iterator end() const { return Iterator(0); }

private:
  static constexpr AxisSet of(unsigned bits) { return AxisSet(static_cast<uint16_t>(bits)); }
  uint16_t bits_ = 0;
};
static_assert(AxisSet(AxisId{}).empty() && !AxisSet(0xFFFF).contains(AxisId{}));

} // namespace spmd::ir
