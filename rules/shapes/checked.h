// Arithmetic on what a program writes: attributes may be as large as 2^53, so that a product of two
// of them leaves the integers. What does so is unknown from there on, and no extent.
#pragma once

#include "ir/input/input.h"
#include "ir/shape.h"

#include <algorithm>
#include <optional>

namespace spmd::rules {

class CheckedInt {
public:
  CheckedInt(int64_t number) : number_(number) {}

  friend CheckedInt operator+(CheckedInt a, CheckedInt b) {
    return apply(
        a, b, [](int64_t x, int64_t y, int64_t *out) { return __builtin_add_overflow(x, y, out); });
  }
  friend CheckedInt operator-(CheckedInt a, CheckedInt b) {
    return apply(
        a, b, [](int64_t x, int64_t y, int64_t *out) { return __builtin_sub_overflow(x, y, out); });
  }
  friend CheckedInt operator*(CheckedInt a, CheckedInt b) {
    return apply(
        a, b, [](int64_t x, int64_t y, int64_t *out) { return __builtin_mul_overflow(x, y, out); });
  }
  // By a positive number; rounds towards 0.
  CheckedInt over(int64_t divisor) const {
    CheckedInt result = *this;
    if (result.number_)
      *result.number_ /= divisor;
    return result;
  }
  std::optional<int64_t> number() const { return number_; }
  // None for what no extent may be: a negative number, or one beyond 2^53.
  std::optional<ir::Extent> extent() const {
    bool fits = number_ && *number_ >= 0 && *number_ <= ir::kMaxInteger;
    return fits ? std::optional(ir::Extent(*number_)) : std::nullopt;
  }
  // The same where a negative number means that nothing is left.
  std::optional<ir::Extent> extent_or_empty() const {
    return number_ && *number_ < 0 ? std::optional(ir::Extent(0)) : extent();
  }

private:
  template <class F> static CheckedInt apply(CheckedInt a, CheckedInt b, F &&overflows) {
    CheckedInt result(0);
    bool none = !a.number_ || !b.number_ || overflows(*a.number_, *b.number_, &*result.number_);
    if (none)
      result.number_ = std::nullopt;
    return result;
  }
  std::optional<int64_t> number_;
};

} // namespace spmd::rules
