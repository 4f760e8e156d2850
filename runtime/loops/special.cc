// Series, continued fractions and Newton's method: textbook forms, accurate to a few units of the
// last places.
#include "runtime/loops/special.h"

#include <cmath>
#include <limits>

namespace spmd::runtime {

namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kPi = 3.14159265358979323846;
// Bernoulli numbers of even index, from the second on.
constexpr double kBernoulli[] = {1.0 / 6,       -1.0 / 30, 1.0 / 42,      -1.0 / 30,    5.0 / 66,
                                 -691.0 / 2730, 7.0 / 6,   -3617.0 / 510, 43867.0 / 798};

bool is_whole(double x) { return x == std::floor(x); }

// erfc(x) = z for 0 < z < 2. Halley's method, from an approximation good to three places.
double erfc_inverse(double z) {
  if (!(z > 0 && z < 2))
    return z == 0 ? kInfinity : z == 2 ? -kInfinity : kNaN;
  if (z > 1)
    return -erfc_inverse(2 - z);
  double x;
  if (z < 1e-3) {
    double t = std::sqrt(-2 * std::log(z / 2));
    x = (t - (2.30753 + t * 0.27061) / (1 + t * (0.99229 + t * 0.04481))) * M_SQRT1_2;
  } else {
    constexpr double kA = 0.147; // Winitzki
    double y = 1 - z, log = std::log(z * (1 + y)), half = 2 / (kPi * kA) + log / 2;
    x = std::sqrt(std::sqrt(half * half - log / kA) - half);
  }
  for (int i = 0; i < 4; ++i) {
    double step = (std::erfc(x) - z) / (-M_2_SQRTPI * std::exp(-x * x));
    x -= step / (1 + x * step);
  }
  return x;
}

// The lower function by its series, for x < a + 1.
double gamma_series(double a, double x) {
  double term = 1 / a, sum = term;
  for (double n = a + 1; std::abs(term) > std::abs(sum) * kEpsilon / 4; ++n)
    sum += term *= x / n;
  return sum * std::exp(-x + a * std::log(x) - std::lgamma(a));
}

// A continued fraction b0 + a1 / (b1 + a2 / ...) by Lentz's method; step(i, a, b) gives the i-th.
template <class Step> double continued_fraction(double b0, Step step) {
  constexpr double kTiny = 1e-300;
  double value = b0 == 0 ? kTiny : b0, c = value, d = 0;
  for (int i = 1; i < 100000; ++i) {
    double a, b;
    step(i, a, b);
    d = b + a * d;
    c = b + a / c;
    d = 1 / (d == 0 ? kTiny : d);
    c = c == 0 ? kTiny : c;
    value *= c * d;
    if (std::abs(c * d - 1) < kEpsilon)
      break;
  }
  return value;
}

// The upper function, for x >= a + 1.
double gamma_fraction(double a, double x) {
  double fraction = continued_fraction(x + 1 - a, [&](int i, double &ai, double &bi) {
    ai = -i * (i - a);
    bi = x + 2 * i + 1 - a;
  });
  return std::exp(-x + a * std::log(x) - std::lgamma(a)) / fraction;
}

bool is_gamma_argument(double a, double x) { return a >= 0 && x >= 0 && !(a == 0 && x == 0); }

// exp(-x) times the modified Bessel function of order 0 or 1; x >= 0.
double scaled_bessel(int order, double x) {
  if (x < 30) {
    double quarter = x * x / 4, term = order ? x / 2 : 1, sum = term;
    for (int k = 1; term > sum * kEpsilon / 4; ++k)
      sum += term *= quarter / (k * (k + order));
    return sum * std::exp(-x);
  }
  double term = 1, sum = 1, mu = 4 * order;
  for (int k = 1; k < 40; ++k) {
    double odd = 2 * k - 1, next = -term * (mu - odd * odd) / (8 * k * x);
    if (std::abs(next) >= std::abs(term) || std::abs(next) < kEpsilon / 4)
      break;
    sum += term = next;
  }
  return sum / std::sqrt(2 * kPi * x);
}

} // namespace

double digamma(double x) {
  if (x == 0)
    return std::copysign(kInfinity, -x);
  if (x < 0)
    return is_whole(x) ? kNaN : digamma(1 - x) - kPi / std::tan(kPi * std::remainder(x, 1.0));
  double sum = 0;
  for (; x < 12; ++x)
    sum -= 1 / x;
  double square = 1 / (x * x), power = square;
  double tail = std::log(x) - 0.5 / x;
  for (int j = 0; j < 8; ++j, power *= square)
    tail -= kBernoulli[j] / (2 * (j + 1)) * power;
  return sum + tail;
}

double polygamma(int n, double x) {
  double value = std::tgamma(n + 1.0) * zeta(n + 1, x);
  return n % 2 ? value : -value;
}

// Euler and Maclaurin's sum. Left of 0 it is meant for whole s.
double zeta(double s, double q) {
  if (!(s >= 1) || std::isnan(q))
    return kNaN;
  if (s == 1 || (q <= 0 && is_whole(q)))
    return kInfinity;
  if (q < 0 && !is_whole(s))
    return kNaN;
  double sum = 0;
  for (; q < 12; ++q)
    sum += std::pow(q, -s);
  sum += std::pow(q, 1 - s) / (s - 1) + std::pow(q, -s) / 2;
  double factor = s * std::pow(q, -s - 1) / 2;
  for (int j = 1; double bernoulli : kBernoulli) {
    sum += bernoulli * factor;
    factor *= (s + 2 * j - 1) * (s + 2 * j) / ((2 * j + 1) * (2 * j + 2) * q * q);
    ++j;
  }
  return sum;
}

double erfinv(double y) {
  if (!(std::abs(y) <= 1))
    return kNaN;
  if (std::abs(y) > 0.5)
    return y > 0 ? erfc_inverse(1 - y) : -erfc_inverse(1 + y);
  double x = y / M_2_SQRTPI;
  for (int i = 0; i < 5; ++i) {
    double step = (std::erf(x) - y) / (M_2_SQRTPI * std::exp(-x * x));
    x -= step / (1 + x * step);
  }
  return x;
}

double ndtri(double p) { return -M_SQRT2 * erfc_inverse(2 * p); }

double erfcx(double x) {
  if (x < 8)
    return std::exp(x * x) * std::erfc(x);
  double square = 1 / (2 * x * x), term = 1, sum = 1;
  for (int k = 1; k < 60; ++k) {
    double next = -term * (2 * k - 1) * square;
    if (std::abs(next) >= std::abs(term) || std::abs(next) < kEpsilon / 4)
      break;
    sum += term = next;
  }
  return sum * M_2_SQRTPI / (2 * x);
}

double log_ndtr(double x) {
  return x < -1 ? std::log(erfcx(-x * M_SQRT1_2) / 2) - x * x / 2
                : std::log1p(-std::erfc(x * M_SQRT1_2) / 2);
}

double igamma(double a, double x) {
  if (!is_gamma_argument(a, x))
    return kNaN;
  if (a == 0 || std::isinf(x))
    return std::isinf(a) ? kNaN : 1;
  if (x == 0 || std::isinf(a))
    return 0;
  return x < a + 1 ? gamma_series(a, x) : 1 - gamma_fraction(a, x);
}

double igammac(double a, double x) {
  if (!is_gamma_argument(a, x))
    return kNaN;
  if (a == 0 || std::isinf(x))
    return std::isinf(a) ? kNaN : 0;
  if (x == 0 || std::isinf(a))
    return 1;
  return x < a + 1 ? 1 - gamma_series(a, x) : gamma_fraction(a, x);
}

double betainc(double a, double b, double x) {
  if (!(a > 0 && b > 0 && x >= 0 && x <= 1))
    return kNaN;
  if (x == 0 || x == 1)
    return x;
  if (x > (a + 1) / (a + b + 2))
    return 1 - betainc(b, a, 1 - x);
  double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) +
                          b * std::log1p(-x)) /
                 a;
  return front / continued_fraction(1, [&](int i, double &ai, double &bi) {
           int m = i / 2;
           ai = i % 2 ? -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
                      : m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
           bi = 1;
         });
}

double i0e(double x) { return std::isnan(x) ? x : scaled_bessel(0, std::abs(x)); }
double i1e(double x) { return std::isnan(x) ? x : std::copysign(scaled_bessel(1, std::abs(x)), x); }
double bessel_j0(double x) { return ::j0(x); }
double bessel_j1(double x) { return ::j1(x); }

} // namespace spmd::runtime
