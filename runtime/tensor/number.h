// Numbers that kernels are written in. A kernel is one template over its element type: double,
// complex, or a number that knows its derivative. Dual carries the derivative along one direction
// beside the value; Var writes a tape that is read backwards. Both follow the rules below, each
// written once.
#pragma once

#include "runtime/tensor/special.h"
#include "runtime/tensor/tensor.h"

#include <cmath>
#include <concepts>
#include <limits>
#include <vector>

namespace spmd::runtime {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kPi = 3.14159265358979323846;

// By these names templates find the functions of every element type.
using std::abs;
using std::acos;
using std::acosh;
using std::asin;
using std::asinh;
using std::atan;
using std::atan2;
using std::atanh;
using std::cbrt;
using std::ceil;
using std::cos;
using std::cosh;
using std::erf;
using std::erfc;
using std::exp;
using std::exp2;
using std::expm1;
using std::floor;
using std::fmod;
using std::hypot;
using std::isfinite;
using std::isinf;
using std::isnan;
using std::lgamma;
using std::log;
using std::log10;
using std::log1p;
using std::log2;
using std::nextafter;
using std::pow;
using std::round;
using std::signbit;
using std::sin;
using std::sinh;
using std::sqrt;
using std::tan;
using std::tanh;
using std::trunc;
inline double plain(double x) { return x; }
inline double plain(const Complex &x) { return x.real(); }

// Arithmetic of a number N with `N::Value value()` and, for the value of a function of one or two
// numbers and its derivatives, `N::chained(value, a, da)`, `N::chained(value, a, da, b, db)`.
template <class N> struct Arithmetic {
  friend N operator-(N a) { return N::chained(-a.value(), a, -1.0); }
  friend N operator+(N a, N b) { return N::chained(a.value() + b.value(), a, 1.0, b, 1.0); }
  friend N operator-(N a, N b) { return N::chained(a.value() - b.value(), a, 1.0, b, -1.0); }
  friend N operator*(N a, N b) {
    return N::chained(a.value() * b.value(), a, b.value(), b, a.value());
  }
  friend N operator/(N a, N b) {
    auto quotient = a.value() / b.value();
    return N::chained(quotient, a, 1.0 / b.value(), b, -quotient / b.value());
  }
  friend N &operator+=(N &a, N b) { return a = a + b; }
  friend N &operator-=(N &a, N b) { return a = a - b; }
  friend N &operator*=(N &a, N b) { return a = a * b; }
  friend N &operator/=(N &a, N b) { return a = a / b; }
  friend bool operator<(N a, N b) { return a.value() < b.value(); }
  friend bool operator>(N a, N b) { return a.value() > b.value(); }
  friend bool operator<=(N a, N b) { return a.value() <= b.value(); }
  friend bool operator>=(N a, N b) { return a.value() >= b.value(); }
  friend bool operator==(N a, N b) { return a.value() == b.value(); }
  friend bool operator!=(N a, N b) { return !(a == b); }
};

// A factor 0 removes its term whatever the other factor is: what does not depend on the direction
// may have an infinite derivative.
template <class T> T slope_times(const T &slope, const T &derivative) {
  return plain(slope) == 0 ? T(0.0) : slope * derivative;
}

// The value of a function and its derivative along one direction; T may be such a number again.
template <class T> class Dual : public Arithmetic<Dual<T>> {
public:
  using Value = T;
  Dual() : Dual(0.0) {}
  Dual(double value) : value_(value), slope_(0.0) {}
  explicit Dual(T value) requires(!std::same_as<T, double>) : value_(value), slope_(0.0) {}
  Dual(T value, T slope) : value_(value), slope_(slope) {}

  const T &value() const { return value_; }
  const T &slope() const { return slope_; }
  static Dual chained(T value, const Dual &a, T da) { return {value, slope_times(a.slope_, da)}; }
  static Dual chained(T value, const Dual &a, T da, const Dual &b, T db) {
    return {value, slope_times(a.slope_, da) + slope_times(b.slope_, db)};
  }

private:
  T value_, slope_;
};

// What was computed on this thread since the last clear(): per number, from which it was made.
class Tape {
public:
  using Place = uint32_t; // 0: a constant
  static Tape &here();

  void clear() { steps_.resize(1); }
  Place add(Place a, double da, Place b, double db) {
    steps_.push_back({a, b, da, db});
    return static_cast<Place>(steps_.size() - 1);
  }
  // Per place the derivative of a sum: `gradient` says with which weights numbers enter it, and is
  // filled with the derivatives by all numbers. size() entries.
  void backward(std::vector<double> &gradient) const;
  size_t size() const { return steps_.size(); }

private:
  struct Step {
    Place a = 0, b = 0;
    double da = 0, db = 0;
  };
  std::vector<Step> steps_ = std::vector<Step>(1);
};

// A number on the tape of this thread.
class Var : public Arithmetic<Var> {
public:
  using Value = double;
  Var() = default;
  Var(double value) : value_(value) {}
  // A number to derive by.
  static Var input(double value) { return {value, Tape::here().add(0, 0, 0, 0)}; }

  double value() const { return value_; }
  Tape::Place place() const { return place_; }
  static Var chained(double value, Var a, double da) {
    return a.place_ ? Var(value, Tape::here().add(a.place_, da, 0, 0)) : Var(value);
  }
  static Var chained(double value, Var a, double da, Var b, double db) {
    return a.place_ || b.place_ ? Var(value, Tape::here().add(a.place_, da, b.place_, db))
                                : Var(value);
  }

private:
  Var(double value, Tape::Place place) : value_(value), place_(place) {}
  double value_ = 0;
  Tape::Place place_ = 0;
};

template <class N>
concept Derived = std::derived_from<N, Arithmetic<N>>;

inline double plain(Var x) { return x.value(); }
template <class T> auto plain(const Dual<T> &x) { return plain(x.value()); }

// The rules.
// clang-format off
template <Derived N> N exp(N a) { auto v = exp(a.value()); return N::chained(v, a, v); }
template <Derived N> N exp2(N a) { auto v = exp2(a.value()); return N::chained(v, a, v * M_LN2); }
template <Derived N> N expm1(N a) { auto v = expm1(a.value()); return N::chained(v, a, v + 1.0); }
template <Derived N> N log(N a) { auto x = a.value(); return N::chained(log(x), a, 1.0 / x); }
template <Derived N> N log2(N a) { auto x = a.value(); return N::chained(log2(x), a, 1.0 / (x * M_LN2)); }
template <Derived N> N log10(N a) { auto x = a.value(); return N::chained(log10(x), a, 1.0 / (x * M_LN10)); }
template <Derived N> N log1p(N a) { auto x = a.value(); return N::chained(log1p(x), a, 1.0 / (1.0 + x)); }
template <Derived N> N sqrt(N a) { auto v = sqrt(a.value()); return N::chained(v, a, 0.5 / v); }
template <Derived N> N cbrt(N a) { auto v = cbrt(a.value()); return N::chained(v, a, 1.0 / (3.0 * v * v)); }
template <Derived N> N sin(N a) { auto x = a.value(); return N::chained(sin(x), a, cos(x)); }
template <Derived N> N cos(N a) { auto x = a.value(); return N::chained(cos(x), a, -sin(x)); }
template <Derived N> N tan(N a) { auto v = tan(a.value()); return N::chained(v, a, 1.0 + v * v); }
template <Derived N> N asin(N a) { auto x = a.value(); return N::chained(asin(x), a, 1.0 / sqrt(1.0 - x * x)); }
template <Derived N> N acos(N a) { auto x = a.value(); return N::chained(acos(x), a, -1.0 / sqrt(1.0 - x * x)); }
template <Derived N> N atan(N a) { auto x = a.value(); return N::chained(atan(x), a, 1.0 / (1.0 + x * x)); }
template <Derived N> N sinh(N a) { auto x = a.value(); return N::chained(sinh(x), a, cosh(x)); }
template <Derived N> N cosh(N a) { auto x = a.value(); return N::chained(cosh(x), a, sinh(x)); }
template <Derived N> N tanh(N a) { auto v = tanh(a.value()); return N::chained(v, a, 1.0 - v * v); }
template <Derived N> N asinh(N a) { auto x = a.value(); return N::chained(asinh(x), a, 1.0 / sqrt(x * x + 1.0)); }
template <Derived N> N acosh(N a) { auto x = a.value(); return N::chained(acosh(x), a, 1.0 / sqrt(x * x - 1.0)); }
template <Derived N> N atanh(N a) { auto x = a.value(); return N::chained(atanh(x), a, 1.0 / (1.0 - x * x)); }
template <Derived N> N erf(N a) { auto x = a.value(); return N::chained(erf(x), a, M_2_SQRTPI * exp(-x * x)); }
template <Derived N> N erfc(N a) { auto x = a.value(); return N::chained(erfc(x), a, -M_2_SQRTPI * exp(-x * x)); }
template <Derived N> N polygamma(int n, N a) { auto x = a.value(); return N::chained(polygamma(n, x), a, polygamma(n + 1, x)); }
template <Derived N> N digamma(N a) { auto x = a.value(); return N::chained(digamma(x), a, polygamma(1, x)); }
template <Derived N> N lgamma(N a) { auto x = a.value(); return N::chained(lgamma(x), a, digamma(x)); }
template <Derived N> N erfinv(N a) { auto v = erfinv(a.value()); return N::chained(v, a, exp(v * v) / M_2_SQRTPI); }
template <Derived N> N abs(N a) { auto x = plain(a); return x < 0 ? -a : x > 0 ? a : N::chained(abs(a.value()), a, 0.0); }
// A step has derivative 0.
template <Derived N> N floor(N a) { return N(floor(plain(a))); }
template <Derived N> N ceil(N a) { return N(ceil(plain(a))); }
template <Derived N> N trunc(N a) { return N(trunc(plain(a))); }
// clang-format on
template <Derived N> N pow(N a, N b) {
  auto x = a.value();
  auto y = b.value();
  auto v = pow(x, y);
  using Value = typename N::Value;
  Value da = plain(y) == 0 ? Value(0.0) : y * pow(x, y - 1.0);
  Value db = plain(x) == 0 ? Value(0.0) : v * log(x);
  return N::chained(v, a, da, b, db);
}
template <Derived N> N atan2(N a, N b) {
  auto y = a.value();
  auto x = b.value();
  auto square = x * x + y * y;
  return N::chained(atan2(y, x), a, x / square, b, -y / square);
}
template <Derived N> N hypot(N a, N b) {
  auto x = a.value();
  auto y = b.value();
  auto v = hypot(x, y);
  using Value = typename N::Value;
  bool zero = plain(v) == 0;
  return N::chained(v, a, zero ? Value(0.0) : x / v, b, zero ? Value(0.0) : y / v);
}

// What the library has for real numbers alone.
inline Complex exp2(const Complex &x) { return exp(x * M_LN2); }
inline Complex log2(const Complex &x) { return log(x) * M_LOG2E; }
inline Complex expm1(const Complex &x) {
  double half = std::sin(x.imag() / 2);
  return {std::expm1(x.real()) * std::cos(x.imag()) - 2 * half * half,
          std::exp(x.real()) * std::sin(x.imag())};
}
inline Complex log1p(const Complex &x) {
  double square = x.real() * (2 + x.real()) + x.imag() * x.imag();
  return {std::log1p(square) / 2, std::atan2(x.imag(), 1 + x.real())};
}
// Whether a condition holds.
template <class T> bool truth(const T &x) { return x != T(0.0); }
inline bool truth(Residue x) { return x.value() != 0; }

// Functions of the above, for every element type.
template <class T> T rsqrt(T x) { return 1.0 / sqrt(x); }
template <class T> T sigmoid(T x) {
  if (plain(x) >= 0)
    return 1.0 / (1.0 + exp(-x));
  T e = exp(x);
  return e / (1.0 + e);
}
// log(1 + exp(x))
template <class T> T softplus(T x) { return plain(x) > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
// The first of equal ones; NaN if either is.
template <class T> T larger(T a, T b) {
  return isnan(plain(a)) || !(plain(a) < plain(b) || isnan(plain(b))) ? a : b;
}
template <class T> T smaller(T a, T b) {
  return isnan(plain(a)) || !(plain(b) < plain(a) || isnan(plain(b))) ? a : b;
}
// The same number as an element.
template <class T> T constant(double number) {
  if constexpr (std::is_same_v<T, Residue>)
    return residue_of(number);
  else
    return T(number);
}

} // namespace spmd::runtime
