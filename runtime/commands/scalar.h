// Elements and scalar programs as a device works on them, and as a CPU does that simulates one:
// one text for both, so that what is tested without a device is what runs on it.
#pragma once

#include "runtime/commands/command.h"

#include <cmath>
#include <cstring>

#ifdef __CUDACC__
#define SPMD_ON_DEVICE __host__ __device__ __forceinline__
#else
#define SPMD_ON_DEVICE inline
#endif

namespace spmd::device {

SPMD_ON_DEVICE uint32_t bytes_of(uint32_t element) {
  switch (element) {
  case kSpmdBool:
  case kSpmdI8:
  case kSpmdU8:
  case kSpmdF8E4M3:
  case kSpmdF8E5M2:
    return 1;
  case kSpmdI16:
  case kSpmdU16:
  case kSpmdBF16:
  case kSpmdF16:
    return 2;
  case kSpmdI32:
  case kSpmdU32:
  case kSpmdF32:
    return 4;
  case kSpmdC128:
    return 16;
  default:
    return 8;
  }
}

template <class T> SPMD_ON_DEVICE T bits_at(const char *data) {
  T value;
  memcpy(&value, data, sizeof value);
  return value;
}
template <class T> SPMD_ON_DEVICE void put_bits(char *data, T value) {
  memcpy(data, &value, sizeof value);
}

// A float narrower than 32 bits: `fraction` bits, `exponent` bits, as its encoding says.
struct Narrow {
  uint32_t exponent, fraction;
  bool has_infinity; // F8E4M3: all ones is NaN, and no infinity
};
SPMD_ON_DEVICE Narrow narrow_of(uint32_t element) {
  switch (element) {
  case kSpmdF8E4M3:
    return {4, 3, false};
  case kSpmdF8E5M2:
    return {5, 2, true};
  case kSpmdF16:
    return {5, 10, true};
  default:
    return {8, 7, true}; // bf16
  }
}

SPMD_ON_DEVICE double decoded(uint32_t bits, Narrow form) {
  const int bias = (1 << (form.exponent - 1)) - 1;
  const uint32_t ones = (1u << form.exponent) - 1;
  const uint32_t sign = bits >> (form.exponent + form.fraction);
  const uint32_t power = bits >> form.fraction & ones;
  const uint32_t fraction = bits & ((1u << form.fraction) - 1);
  double value;
  if (form.has_infinity && power == ones)
    value = fraction ? NAN : INFINITY;
  else if (!form.has_infinity && power == ones && fraction == (1u << form.fraction) - 1)
    value = NAN;
  else if (power == 0)
    value = ldexp(static_cast<double>(fraction), 1 - bias - static_cast<int>(form.fraction));
  else
    value = ldexp(static_cast<double>(fraction | 1u << form.fraction),
                  static_cast<int>(power) - bias - static_cast<int>(form.fraction));
  return sign ? -value : value;
}

// The nearest one, ties to even. What is too large is infinite, or NaN where there is no infinity.
SPMD_ON_DEVICE uint32_t encoded(double value, Narrow form) {
  const int bias = (1 << (form.exponent - 1)) - 1;
  const uint32_t ones = (1u << form.exponent) - 1;
  const uint32_t all = (1u << form.fraction) - 1;
  const uint32_t sign = static_cast<uint32_t>(copysign(1.0, value) < 0)
                        << (form.exponent + form.fraction);
  const uint32_t nan = form.has_infinity ? ones << form.fraction | 1u << (form.fraction - 1)
                                         : ones << form.fraction | all;
  const uint32_t beyond = form.has_infinity ? ones << form.fraction : nan;
  const double size = fabs(value);
  if (!(size == size))
    return sign | nan;
  if (size > 1e300)
    return sign | beyond;
  if (size == 0)
    return sign;
  int power = 0;
  frexp(size, &power);
  power -= 1; // size = 1.x * 2^power
  if (power < 1 - bias)
    power = 1 - bias;
  // Whole numbers of the unit in the last place; a carry goes into the exponent by itself.
  const double units = rint(ldexp(size, static_cast<int>(form.fraction) - power));
  const auto whole = static_cast<uint64_t>(units);
  const uint64_t bits = whole < (1u << form.fraction)
                            ? whole
                            : whole + (static_cast<uint64_t>(power + bias - 1) << form.fraction);
  const uint64_t last = form.has_infinity
                            ? (static_cast<uint64_t>(ones) << form.fraction) - 1
                            : (static_cast<uint64_t>(ones) << form.fraction | all) - 1;
  return sign | (bits > last ? beyond : static_cast<uint32_t>(bits));
}

// Real numbers: complex ones are only moved. Without an element: the place.
SPMD_ON_DEVICE double load(SpmdAddress data, uint32_t element, int64_t place) {
  if (element == kSpmdNoElement)
    return static_cast<double>(place);
  const char *at =
      reinterpret_cast<const char *>(data) + place * static_cast<int64_t>(bytes_of(element));
  switch (element) {
  case kSpmdBool:
  case kSpmdU8:
    return bits_at<uint8_t>(at);
  case kSpmdI8:
    return bits_at<int8_t>(at);
  case kSpmdI16:
    return bits_at<int16_t>(at);
  case kSpmdU16:
    return bits_at<uint16_t>(at);
  case kSpmdI32:
    return bits_at<int32_t>(at);
  case kSpmdU32:
    return bits_at<uint32_t>(at);
  case kSpmdI64:
    return static_cast<double>(bits_at<int64_t>(at));
  case kSpmdU64:
    return static_cast<double>(bits_at<uint64_t>(at));
  case kSpmdF32:
    return bits_at<float>(at);
  case kSpmdF64:
    return bits_at<double>(at);
  case kSpmdF8E4M3:
  case kSpmdF8E5M2:
    return decoded(bits_at<uint8_t>(at), narrow_of(element));
  default:
    return decoded(bits_at<uint16_t>(at), narrow_of(element));
  }
}

// Whole numbers lose their fraction and wrap; NaN and what is beyond 64 bits gives 0.
template <class T> SPMD_ON_DEVICE T wrapped(double value) {
  if (!(fabs(value) < 18446744073709551616.0))
    return 0;
  return value < 0 ? static_cast<T>(0 - static_cast<uint64_t>(-value))
                   : static_cast<T>(static_cast<uint64_t>(value));
}

SPMD_ON_DEVICE void store(SpmdAddress data, uint32_t element, int64_t place, double value) {
  char *at = reinterpret_cast<char *>(data) + place * static_cast<int64_t>(bytes_of(element));
  switch (element) {
  case kSpmdBool:
    return put_bits<uint8_t>(at, value != 0);
  case kSpmdU8:
  case kSpmdI8:
    return put_bits(at, wrapped<uint8_t>(value));
  case kSpmdI16:
  case kSpmdU16:
    return put_bits(at, wrapped<uint16_t>(value));
  case kSpmdI32:
  case kSpmdU32:
    return put_bits(at, wrapped<uint32_t>(value));
  case kSpmdI64:
  case kSpmdU64:
    return put_bits(at, wrapped<uint64_t>(value));
  case kSpmdF32:
    return put_bits(at, static_cast<float>(value));
  case kSpmdF64:
    return put_bits(at, value);
  case kSpmdF8E4M3:
  case kSpmdF8E5M2:
    return put_bits(at, static_cast<uint8_t>(encoded(value, narrow_of(element))));
  default:
    return put_bits(at, static_cast<uint16_t>(encoded(value, narrow_of(element))));
  }
}

// What a number is once it was stored and loaded.
SPMD_ON_DEVICE double rounded(double value, uint32_t element) {
  char cell[16];
  const auto data = reinterpret_cast<SpmdAddress>(&cell[0]);
  store(data, element, 0, value);
  return load(data, element, 0);
}

// How many of `a`, `b` and `c` are steps.
SPMD_ON_DEVICE uint32_t operand_count(uint32_t op) {
  if (op == kSpmdInput || op == kSpmdConstant)
    return 0;
  if (op == kSpmdSelect)
    return 3;
  const bool one = op == kSpmdIsNan || op == kSpmdRound || (op >= kSpmdNeg && op < kSpmdPow);
  return one ? 1 : 2;
}

// In double, or in float where a kernel computes with that.
template <class Number> SPMD_ON_DEVICE Number done(uint8_t op, Number a) {
  switch (op) {
  case kSpmdIsNan:
    return !(a == a);
  case kSpmdNeg:
    return -a;
  case kSpmdAbs:
    return fabs(a);
  case kSpmdFloor:
    return floor(a);
  case kSpmdCeil:
    return ceil(a);
  case kSpmdTrunc:
    return trunc(a);
  case kSpmdExp:
    return exp(a);
  case kSpmdExp2:
    return exp2(a);
  case kSpmdExpm1:
    return expm1(a);
  case kSpmdLog:
    return log(a);
  case kSpmdLog2:
    return log2(a);
  case kSpmdLog10:
    return log10(a);
  case kSpmdLog1p:
    return log1p(a);
  case kSpmdSqrt:
    return sqrt(a);
  case kSpmdCbrt:
    return cbrt(a);
  case kSpmdSin:
    return sin(a);
  case kSpmdCos:
    return cos(a);
  case kSpmdTan:
    return tan(a);
  case kSpmdAsin:
    return asin(a);
  case kSpmdAcos:
    return acos(a);
  case kSpmdAtan:
    return atan(a);
  case kSpmdSinh:
    return sinh(a);
  case kSpmdCosh:
    return cosh(a);
  case kSpmdTanh:
    return tanh(a);
  case kSpmdAsinh:
    return asinh(a);
  case kSpmdAcosh:
    return acosh(a);
  case kSpmdAtanh:
    return atanh(a);
  case kSpmdErf:
    return erf(a);
  case kSpmdErfc:
    return erfc(a);
  default:
    return NAN;
  }
}

template <class Number> SPMD_ON_DEVICE Number done(uint8_t op, Number a, Number b, Number c) {
  switch (op) {
  case kSpmdSelect:
    return a != 0 ? b : c;
  case kSpmdAdd:
    return a + b;
  case kSpmdSub:
    return a - b;
  case kSpmdMul:
    return a * b;
  case kSpmdDiv:
    return a / b;
  case kSpmdMulOrZero:
    return a == 0 ? 0 : a * b;
  case kSpmdLess:
    return a < b;
  case kSpmdLessEqual:
    return a <= b;
  case kSpmdEqual:
    return a == b;
  case kSpmdPow:
    return pow(a, b);
  case kSpmdAtan2:
    return atan2(a, b);
  case kSpmdHypot:
    return hypot(a, b);
  case kSpmdFmod:
    return fmod(a, b);
  case kSpmdCopysign:
    return copysign(a, b);
  default:
    return done(op, a);
  }
}

SPMD_ON_DEVICE double combined(uint32_t combiner, double a, double b) {
  switch (combiner) {
  case kSpmdMax:
    return !(a == a) || a > b ? a : b;
  case kSpmdMin:
    return !(a == a) || a < b ? a : b;
  case kSpmdProd:
    return a * b;
  default:
    return a + b;
  }
}
SPMD_ON_DEVICE double neutral(uint32_t combiner) {
  switch (combiner) {
  case kSpmdMax:
    return -INFINITY;
  case kSpmdMin:
    return INFINITY;
  case kSpmdProd:
    return 1;
  default:
    return 0;
  }
}

// The coordinates of a place of loops [first, last), counted row by row.
SPMD_ON_DEVICE void unravel(const int64_t *extents, uint32_t first, uint32_t last, int64_t place,
                            int64_t *at) {
  for (uint32_t l = last; l-- > first;) {
    at[l] = place % extents[l];
    place /= extents[l];
  }
}
SPMD_ON_DEVICE int64_t dot(const int64_t *strides, const int64_t *at, uint32_t loops) {
  int64_t sum = 0;
  for (uint32_t l = 0; l < loops; ++l)
    sum += strides[l] * at[l];
  return sum;
}

// What the program makes of the arrays at one place of all loops.
SPMD_ON_DEVICE double evaluate_at(const SpmdLoopNest &nest, const int64_t *at) {
  double values[kSpmdSteps];
  double loaded[kSpmdArrays];
  for (uint32_t i = 0; i < nest.arrays; ++i) {
    const SpmdArray &array = nest.in[i];
    int64_t place = dot(array.strides, at, nest.loops);
    bool there = true;
    if (array.index != ~0u) {
      const SpmdArray &index = nest.in[array.index];
      const auto entry = static_cast<int64_t>(
                             load(index.data, index.element, dot(index.strides, at, nest.loops))) -
                         array.begin;
      there = entry >= 0 && entry < array.extent;
      place += entry * array.stride;
    }
    loaded[i] = there ? load(array.data, array.element, place) : 0;
  }
  for (uint32_t s = 0; s < nest.steps; ++s) {
    const SpmdScalarStep step = nest.program[s];
    if (step.op == kSpmdInput)
      values[s] = loaded[step.a];
    else if (step.op == kSpmdConstant)
      values[s] = nest.numbers[step.a];
    else if (step.op == kSpmdRound)
      values[s] = rounded(values[step.a], step.b);
    else
      values[s] = done(step.op, values[step.a], values[step.b], values[step.c]);
  }
  return values[nest.steps - 1];
}

// Whole numbers in the order of the numbers: NaN is the last one, zeros are one.
SPMD_ON_DEVICE uint64_t order_key(double value, bool descending) {
  uint64_t key = ~uint64_t(0);
  if (value == value) {
    const double number = value == 0 ? 0 : value;
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    const uint64_t sign = uint64_t(1) << 63;
    key = bits & sign ? ~bits : bits | sign;
  }
  return descending ? ~key : key;
}

SPMD_ON_DEVICE int64_t scatter_row(const SpmdScatter &scatter, int64_t entry) {
  return static_cast<int64_t>(load(scatter.row_numbers, scatter.row_element, entry));
}

SPMD_ON_DEVICE int64_t iterations(const int64_t *extents, uint32_t first, uint32_t last) {
  int64_t count = 1;
  for (uint32_t l = first; l < last; ++l)
    count *= extents[l];
  return count;
}

// Rounds and stores what was combined for one place of the outer loops.
SPMD_ON_DEVICE void finish(const SpmdLoopNest &nest, const int64_t *at, double value) {
  const uint32_t outer = nest.loops - nest.inner;
  const int64_t place = dot(nest.out.strides, at, outer);
  value = value * nest.factor / nest.divisor;
  if (nest.adds)
    value += load(nest.out.data, nest.out.element, place);
  store(nest.out.data, nest.out.element, place, value);
}

} // namespace spmd::device
