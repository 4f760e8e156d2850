// Series and Newton's method: textbook forms, accurate to a few units of the
// last digits.
#include "runtime/tensor/special.h"

#include <cmath>
#include <limits>

namespace spmd::runtime {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kPi = 3.14159265358979323846;
// Bernoulli numbers of even index, from the second on.
constexpr double kBernoulli[] = {1.0 / 6,       -1.0 / 30, 1.0 / 42,      -1.0 / 30,    5.0 / 66,
                                 -691.0 / 2730, 7.0 / 6,   -3617.0 / 510, 43867.0 / 798};

bool is_whole(double x) { return x == std::floor(x); }

// erfc(x) = z for 0 < z < 2. Halley's method, from an approximation good to three digits.
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

} // namespace spmd::runtime
