// A number that writes down how it is made: a kernel of numbers, run once on such, gives the scalar
// program that a device carries out for every element. Where the kernel asks which of two numbers
// is larger it is run again for the other answer, and the program selects.
#pragma once

#include "runtime/commands/command.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <optional>
#include <type_traits>
#include <vector>

namespace spmd::runtime {

// The last step is the result. Inputs and constants by number.
struct ScalarProgram {
  std::vector<SpmdScalarStep> steps;
  std::vector<double> constants;
};

// The input that stands for the gradient of the result.
inline constexpr unsigned kGradientInput = 255;

class TracedNumber {
public:
  TracedNumber() : TracedNumber(0.0) {}
  TracedNumber(double constant);
  static TracedNumber input(unsigned number) { return add(kSpmdInput, number); }
  // The numbers of steps, or what `op` takes in their place.
  static TracedNumber add(SpmdOp op, uint32_t a, uint32_t b = 0, uint32_t c = 0);
  static TracedNumber of(SpmdOp op, TracedNumber a) { return add(op, a.step_); }
  static TracedNumber of(SpmdOp op, TracedNumber a, TracedNumber b) {
    return add(op, a.step_, b.step_);
  }
  // The kernel does what no scalar program can.
  static TracedNumber untraceable();
  // Which way this run of the kernel goes.
  bool holds() const;

  friend TracedNumber operator+(TracedNumber a, TracedNumber b) { return of(kSpmdAdd, a, b); }
  friend TracedNumber operator-(TracedNumber a, TracedNumber b) { return of(kSpmdSub, a, b); }
  friend TracedNumber operator*(TracedNumber a, TracedNumber b) { return of(kSpmdMul, a, b); }
  friend TracedNumber operator/(TracedNumber a, TracedNumber b) { return of(kSpmdDiv, a, b); }
  friend TracedNumber operator-(TracedNumber a) { return of(kSpmdNeg, a); }
  friend TracedNumber &operator+=(TracedNumber &a, TracedNumber b) { return a = a + b; }
  friend bool operator<(TracedNumber a, TracedNumber b) { return of(kSpmdLess, a, b).holds(); }
  friend bool operator>(TracedNumber a, TracedNumber b) { return b < a; }
  friend bool operator<=(TracedNumber a, TracedNumber b) {
    return of(kSpmdLessEqual, a, b).holds();
  }
  friend bool operator>=(TracedNumber a, TracedNumber b) { return b <= a; }
  friend bool operator==(TracedNumber a, TracedNumber b) { return of(kSpmdEqual, a, b).holds(); }
  friend bool operator!=(TracedNumber a, TracedNumber b) { return !(a == b); }

private:
  friend class Recorder;
  uint32_t step_;
};

// None: the kernel is untraceable, or the program would be too long for a device. Run more than
// once.
std::optional<ScalarProgram> record(llvm::function_ref<TracedNumber()> kernel);

inline TracedNumber plain(TracedNumber x) { return x; }
// 0 if the slope is 0, whatever the other is.
inline TracedNumber slope_times(TracedNumber slope, TracedNumber derivative) {
  return TracedNumber::of(kSpmdMulOrZero, slope, derivative);
}

// clang-format off
inline TracedNumber abs(TracedNumber x) { return TracedNumber::of(kSpmdAbs, x); }
inline TracedNumber floor(TracedNumber x) { return TracedNumber::of(kSpmdFloor, x); }
inline TracedNumber ceil(TracedNumber x) { return TracedNumber::of(kSpmdCeil, x); }
inline TracedNumber trunc(TracedNumber x) { return TracedNumber::of(kSpmdTrunc, x); }
inline TracedNumber exp(TracedNumber x) { return TracedNumber::of(kSpmdExp, x); }
inline TracedNumber exp2(TracedNumber x) { return TracedNumber::of(kSpmdExp2, x); }
inline TracedNumber expm1(TracedNumber x) { return TracedNumber::of(kSpmdExpm1, x); }
inline TracedNumber log(TracedNumber x) { return TracedNumber::of(kSpmdLog, x); }
inline TracedNumber log2(TracedNumber x) { return TracedNumber::of(kSpmdLog2, x); }
inline TracedNumber log10(TracedNumber x) { return TracedNumber::of(kSpmdLog10, x); }
inline TracedNumber log1p(TracedNumber x) { return TracedNumber::of(kSpmdLog1p, x); }
inline TracedNumber sqrt(TracedNumber x) { return TracedNumber::of(kSpmdSqrt, x); }
inline TracedNumber cbrt(TracedNumber x) { return TracedNumber::of(kSpmdCbrt, x); }
inline TracedNumber sin(TracedNumber x) { return TracedNumber::of(kSpmdSin, x); }
inline TracedNumber cos(TracedNumber x) { return TracedNumber::of(kSpmdCos, x); }
inline TracedNumber tan(TracedNumber x) { return TracedNumber::of(kSpmdTan, x); }
inline TracedNumber asin(TracedNumber x) { return TracedNumber::of(kSpmdAsin, x); }
inline TracedNumber acos(TracedNumber x) { return TracedNumber::of(kSpmdAcos, x); }
inline TracedNumber atan(TracedNumber x) { return TracedNumber::of(kSpmdAtan, x); }
inline TracedNumber sinh(TracedNumber x) { return TracedNumber::of(kSpmdSinh, x); }
inline TracedNumber cosh(TracedNumber x) { return TracedNumber::of(kSpmdCosh, x); }
inline TracedNumber tanh(TracedNumber x) { return TracedNumber::of(kSpmdTanh, x); }
inline TracedNumber asinh(TracedNumber x) { return TracedNumber::of(kSpmdAsinh, x); }
inline TracedNumber acosh(TracedNumber x) { return TracedNumber::of(kSpmdAcosh, x); }
inline TracedNumber atanh(TracedNumber x) { return TracedNumber::of(kSpmdAtanh, x); }
inline TracedNumber erf(TracedNumber x) { return TracedNumber::of(kSpmdErf, x); }
inline TracedNumber erfc(TracedNumber x) { return TracedNumber::of(kSpmdErfc, x); }
inline TracedNumber pow(TracedNumber a, TracedNumber b) { return TracedNumber::of(kSpmdPow, a, b); }
inline TracedNumber atan2(TracedNumber a, TracedNumber b) { return TracedNumber::of(kSpmdAtan2, a, b); }
inline TracedNumber hypot(TracedNumber a, TracedNumber b) { return TracedNumber::of(kSpmdHypot, a, b); }
inline TracedNumber fmod(TracedNumber a, TracedNumber b) { return TracedNumber::of(kSpmdFmod, a, b); }
inline bool isnan(TracedNumber x) { return TracedNumber::of(kSpmdIsNan, x).holds(); }
inline bool isinf(TracedNumber x) { return abs(x) == __builtin_inf(); }
inline bool isfinite(TracedNumber x) { return abs(x) < __builtin_inf(); }
inline bool signbit(TracedNumber x) { return TracedNumber::of(kSpmdCopysign, 1.0, x) < 0.0; }

inline TracedNumber floored_remainder(TracedNumber a, TracedNumber b) {
  const TracedNumber rest = fmod(a, b);
  return rest != 0.0 && (rest < 0.0) != (b < 0.0) ? rest + b : rest;
}

inline TracedNumber round(TracedNumber) { return TracedNumber::untraceable(); }
inline TracedNumber nextafter(TracedNumber, TracedNumber) { return TracedNumber::untraceable(); }
inline TracedNumber polygamma(int, TracedNumber) { return TracedNumber::untraceable(); }
inline TracedNumber digamma(TracedNumber) { return TracedNumber::untraceable(); }
inline TracedNumber lgamma(TracedNumber) { return TracedNumber::untraceable(); }
inline TracedNumber erfinv(TracedNumber) { return TracedNumber::untraceable(); }
// clang-format on

} // namespace spmd::runtime
