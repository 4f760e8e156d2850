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

class Symbol {
public:
  Symbol() : Symbol(0.0) {}
  Symbol(double constant);
  static Symbol input(unsigned number) { return add(kSpmdInput, number); }
  // The numbers of steps, or what `op` takes in their place.
  static Symbol add(SpmdOp op, uint32_t a, uint32_t b = 0, uint32_t c = 0);
  static Symbol of(SpmdOp op, Symbol a) { return add(op, a.step_); }
  static Symbol of(SpmdOp op, Symbol a, Symbol b) { return add(op, a.step_, b.step_); }
  // The kernel does what no scalar program can.
  static Symbol untraceable();
  // Which way this run of the kernel goes.
  bool holds() const;

  friend Symbol operator+(Symbol a, Symbol b) { return of(kSpmdAdd, a, b); }
  friend Symbol operator-(Symbol a, Symbol b) { return of(kSpmdSub, a, b); }
  friend Symbol operator*(Symbol a, Symbol b) { return of(kSpmdMul, a, b); }
  friend Symbol operator/(Symbol a, Symbol b) { return of(kSpmdDiv, a, b); }
  friend Symbol operator-(Symbol a) { return of(kSpmdNeg, a); }
  friend Symbol &operator+=(Symbol &a, Symbol b) { return a = a + b; }
  friend bool operator<(Symbol a, Symbol b) { return of(kSpmdLess, a, b).holds(); }
  friend bool operator>(Symbol a, Symbol b) { return b < a; }
  friend bool operator<=(Symbol a, Symbol b) { return of(kSpmdLessEqual, a, b).holds(); }
  friend bool operator>=(Symbol a, Symbol b) { return b <= a; }
  friend bool operator==(Symbol a, Symbol b) { return of(kSpmdEqual, a, b).holds(); }
  friend bool operator!=(Symbol a, Symbol b) { return !(a == b); }

private:
  friend class Recorder;
  uint32_t step_;
};

// None: the kernel is untraceable, or the program would be too long for a device. Run more than
// once.
std::optional<ScalarProgram> record(llvm::function_ref<Symbol()> kernel);

inline Symbol plain(Symbol x) { return x; }
// 0 if the slope is 0, whatever the other is.
inline Symbol slope_times(Symbol slope, Symbol derivative) {
  return Symbol::of(kSpmdMulOrZero, slope, derivative);
}

// clang-format off
inline Symbol abs(Symbol x) { return Symbol::of(kSpmdAbs, x); }
inline Symbol floor(Symbol x) { return Symbol::of(kSpmdFloor, x); }
inline Symbol ceil(Symbol x) { return Symbol::of(kSpmdCeil, x); }
inline Symbol trunc(Symbol x) { return Symbol::of(kSpmdTrunc, x); }
inline Symbol exp(Symbol x) { return Symbol::of(kSpmdExp, x); }
inline Symbol exp2(Symbol x) { return Symbol::of(kSpmdExp2, x); }
inline Symbol expm1(Symbol x) { return Symbol::of(kSpmdExpm1, x); }
inline Symbol log(Symbol x) { return Symbol::of(kSpmdLog, x); }
inline Symbol log2(Symbol x) { return Symbol::of(kSpmdLog2, x); }
inline Symbol log10(Symbol x) { return Symbol::of(kSpmdLog10, x); }
inline Symbol log1p(Symbol x) { return Symbol::of(kSpmdLog1p, x); }
inline Symbol sqrt(Symbol x) { return Symbol::of(kSpmdSqrt, x); }
inline Symbol cbrt(Symbol x) { return Symbol::of(kSpmdCbrt, x); }
inline Symbol sin(Symbol x) { return Symbol::of(kSpmdSin, x); }
inline Symbol cos(Symbol x) { return Symbol::of(kSpmdCos, x); }
inline Symbol tan(Symbol x) { return Symbol::of(kSpmdTan, x); }
inline Symbol asin(Symbol x) { return Symbol::of(kSpmdAsin, x); }
inline Symbol acos(Symbol x) { return Symbol::of(kSpmdAcos, x); }
inline Symbol atan(Symbol x) { return Symbol::of(kSpmdAtan, x); }
inline Symbol sinh(Symbol x) { return Symbol::of(kSpmdSinh, x); }
inline Symbol cosh(Symbol x) { return Symbol::of(kSpmdCosh, x); }
inline Symbol tanh(Symbol x) { return Symbol::of(kSpmdTanh, x); }
inline Symbol asinh(Symbol x) { return Symbol::of(kSpmdAsinh, x); }
inline Symbol acosh(Symbol x) { return Symbol::of(kSpmdAcosh, x); }
inline Symbol atanh(Symbol x) { return Symbol::of(kSpmdAtanh, x); }
inline Symbol erf(Symbol x) { return Symbol::of(kSpmdErf, x); }
inline Symbol erfc(Symbol x) { return Symbol::of(kSpmdErfc, x); }
inline Symbol pow(Symbol a, Symbol b) { return Symbol::of(kSpmdPow, a, b); }
inline Symbol atan2(Symbol a, Symbol b) { return Symbol::of(kSpmdAtan2, a, b); }
inline Symbol hypot(Symbol a, Symbol b) { return Symbol::of(kSpmdHypot, a, b); }
inline Symbol fmod(Symbol a, Symbol b) { return Symbol::of(kSpmdFmod, a, b); }
inline bool isnan(Symbol x) { return Symbol::of(kSpmdIsNan, x).holds(); }
inline bool isinf(Symbol x) { return abs(x) == __builtin_inf(); }
inline bool isfinite(Symbol x) { return abs(x) < __builtin_inf(); }
inline bool signbit(Symbol x) { return Symbol::of(kSpmdCopysign, 1.0, x) < 0.0; }

inline Symbol floored_remainder(Symbol a, Symbol b) {
  const Symbol rest = fmod(a, b);
  return rest != 0.0 && (rest < 0.0) != (b < 0.0) ? rest + b : rest;
}

inline Symbol round(Symbol) { return Symbol::untraceable(); }
inline Symbol nextafter(Symbol, Symbol) { return Symbol::untraceable(); }
inline Symbol polygamma(int, Symbol) { return Symbol::untraceable(); }
inline Symbol digamma(Symbol) { return Symbol::untraceable(); }
inline Symbol lgamma(Symbol) { return Symbol::untraceable(); }
inline Symbol erfinv(Symbol) { return Symbol::untraceable(); }
// clang-format on

} // namespace spmd::runtime
