// Bits of emulated element types.
#include "runtime/kernels/integral.h"

#include "runtime/tensor/tensor.h"

#include <bit>
#include <cmath>

namespace spmd::runtime {

using ir::DType;
using ir::DTypeClass;

unsigned bits_of(DType dtype) {
  DTypeClass form = ir::info(dtype).form;
  if (form == DTypeClass::Boolean)
    return 1;
  return form == DTypeClass::Integer ? static_cast<unsigned>(ir::info(dtype).bytes) * 8 : 64;
}

bool is_integral(DType dtype) { return ir::info(dtype).form == DTypeClass::Integer; }

uint64_t bit_pattern(double x, unsigned bits) {
  auto pattern = static_cast<uint64_t>(static_cast<int64_t>(x));
  return bits >= 64 ? pattern : pattern & ((uint64_t(1) << bits) - 1);
}

namespace {

// Sign, exponent and fraction as the formats lay them out: 1 + exponent + fraction bits.
struct Layout {
  DType dtype;
  int exponent_bits, fraction_bits;
  bool has_infinity;
};
constexpr Layout kLayouts[] = {
    {DType::F8E4M3, 4, 3, false},
    {DType::F8E5M2, 5, 2, true},
    {DType::BF16, 8, 7, true},
    {DType::F16, 5, 10, true},
};

const Layout *layout_of(DType dtype) {
  for (const Layout &layout : kLayouts)
    if (layout.dtype == dtype)
      return &layout;
  return nullptr;
}

uint64_t encode_float(double x, const Layout &layout) {
  int bias = (1 << (layout.exponent_bits - 1)) - 1;
  uint64_t most = (uint64_t(1) << layout.exponent_bits) - 1;
  uint64_t sign =
      std::signbit(x) ? uint64_t(1) << (layout.exponent_bits + layout.fraction_bits) : 0;
  uint64_t ones = (uint64_t(1) << layout.fraction_bits) - 1;
  if (std::isnan(x))
    return sign | most << layout.fraction_bits |
           (layout.has_infinity ? uint64_t(1) << (layout.fraction_bits - 1) : ones);
  if (std::isinf(x))
    return sign | most << layout.fraction_bits;
  if (x == 0)
    return sign;
  int exponent = std::max(std::ilogb(x), 1 - bias);
  auto fraction = static_cast<uint64_t>(
      std::ldexp(std::abs(x), layout.fraction_bits - exponent)); // with the hidden bit
  uint64_t biased = fraction > ones ? static_cast<uint64_t>(exponent + bias) : 0;
  return sign | biased << layout.fraction_bits | (fraction & ones);
}

double decode_float(uint64_t pattern, const Layout &layout) {
  int bias = (1 << (layout.exponent_bits - 1)) - 1;
  uint64_t most = (uint64_t(1) << layout.exponent_bits) - 1;
  uint64_t ones = (uint64_t(1) << layout.fraction_bits) - 1;
  uint64_t biased = pattern >> layout.fraction_bits & most, fraction = pattern & ones;
  bool negative = pattern >> (layout.exponent_bits + layout.fraction_bits) & 1;
  double size;
  if (biased == most && layout.has_infinity)
    size = fraction ? std::nan("") : HUGE_VAL;
  else if (biased == most && fraction == ones)
    size = std::nan("");
  else
    size = std::ldexp(static_cast<double>(biased ? fraction + ones + 1 : fraction),
                      (biased ? static_cast<int>(biased) : 1) - bias - layout.fraction_bits);
  return negative ? -size : size;
}

} // namespace

uint64_t encode(double x, DType dtype) {
  if (const Layout *layout = layout_of(dtype))
    return encode_float(rounded(x, dtype), *layout);
  if (dtype == DType::F32)
    return std::bit_cast<uint32_t>(static_cast<float>(x));
  if (dtype == DType::F64)
    return std::bit_cast<uint64_t>(x);
  return bit_pattern(x, static_cast<unsigned>(ir::info(dtype).bytes) * 8);
}

double decode(uint64_t pattern, DType dtype) {
  if (const Layout *layout = layout_of(dtype))
    return decode_float(pattern, *layout);
  if (dtype == DType::F32)
    return std::bit_cast<float>(static_cast<uint32_t>(pattern));
  if (dtype == DType::F64)
    return std::bit_cast<double>(pattern);
  return rounded(static_cast<double>(pattern), dtype); // wraps
}

double floored_remainder(double a, double b) {
  double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

} // namespace spmd::runtime
