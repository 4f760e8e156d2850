// Distributions that need more than one function call.
#include "runtime/tensor/draw.h"

#include <limits>

namespace spmd::runtime {

double Draw::poisson(double rate) {
  if (!(rate >= 0) || std::isinf(rate))
    return std::numeric_limits<double>::quiet_NaN();
  constexpr double kPart = 30, kMany = 1e6;
  // Beyond, the normal distribution is nearer than what the rest of the arithmetic is.
  if (rate > kMany)
    return std::max(0.0, std::round(rate + std::sqrt(rate) * normal()));
  double total = 0;
  for (; rate > 0; rate -= kPart) {
    double left = std::exp(-std::min(rate, kPart));
    for (double product = inner(); product > left; product *= inner())
      ++total;
  }
  return total;
}

// Marsaglia and Tsang, 2000.
double Draw::gamma(double a) {
  if (!(a > 0))
    return a == 0 ? 0 : std::numeric_limits<double>::quiet_NaN();
  if (a < 1)
    return gamma(a + 1) * std::pow(inner(), 1 / a);
  double d = a - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    double x = normal(), cube = 1 + c * x;
    double v = cube * cube * cube;
    if (cube > 0 && std::log(inner()) < x * x / 2 + d - d * v + d * std::log(v))
      return d * v;
  }
}

} // namespace spmd::runtime
