// Loops without branches over one type each. Narrow floats go by way of a float, which has all of
// their numbers; bits of a NaN beyond those that its type has are lost, as they are when machines
// round.
#include "runtime/tensor/packed.h"

#include "runtime/tensor/wide_loops.h"

#include "ir/support/check.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace spmd::runtime {

using ir::DType;

namespace {

// --- one number: the bits of a format, `value` exact, `bits` of what the format has

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

struct F32 {
  using Bits = float;
  float bits(double value) const { return static_cast<float>(value); }
  double value(float bits) const { return bits; }
};

struct BF16 {
  using Bits = uint16_t;
  Bits bits(double value) const {
    return static_cast<Bits>(bits_of(static_cast<float>(value)) >> 16);
  }
  double value(Bits bits) const { return float_of(static_cast<uint32_t>(bits) << 16); }
};

struct F16 {
  using Bits = uint16_t;
  // From one exponent to the other; the numbers below the normal ones are multiples of 2^-24.
  static constexpr uint32_t kRebias = 112u << 23, kLeastNormal = 113u << 23, kInfinity = 255u << 23;
  Bits bits(double value) const {
    uint32_t all = bits_of(static_cast<float>(value));
    uint32_t magnitude = all & 0x7fffffff, sign = all >> 16 & 0x8000;
    uint32_t normal = (magnitude - kRebias) >> 13;
    float small = magnitude < kLeastNormal ? float_of(magnitude) : 0.0f;
    auto subnormal = static_cast<uint32_t>(static_cast<int32_t>(small * 0x1p24f));
    uint32_t special = 0x7c00 | (magnitude >> 13 & 0x3ff);
    uint32_t finite = magnitude < kLeastNormal ? subnormal : normal;
    return static_cast<Bits>(sign | (magnitude >= kInfinity ? special : finite));
  }
  double value(Bits bits) const {
    uint32_t magnitude = bits & 0x7fff, sign = static_cast<uint32_t>(bits & 0x8000) << 16;
    uint32_t normal = (magnitude << 13) + kRebias, special = kInfinity | magnitude << 13;
    uint32_t subnormal = bits_of(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
    uint32_t finite = magnitude < 0x400 ? subnormal : normal;
    return float_of(sign | (magnitude >= 0x7c00 ? special : finite));
  }
};

// Its numbers by their bits, and the bits by the upper twelve of the number as a float: sign,
// exponent, and as much of the fraction as these formats have.
class F8Table {
public:
  F8Table(unsigned fraction, bool has_infinity) {
    for (unsigned key = 0; key < bits_.size(); ++key)
      bits_[key] = static_cast<uint8_t>(key >> 11 << 7 | 0x7f); // of a NaN
    for (unsigned pattern = 0; pattern < 256; ++pattern) {
      values_[pattern] = value_of(pattern, fraction, has_infinity);
      if (!std::isnan(values_[pattern]))
        bits_[bits_of(values_[pattern]) >> kShift] = static_cast<uint8_t>(pattern);
    }
  }
  float value(uint8_t bits) const { return values_[bits]; }
  uint8_t bits(float value) const { return bits_[bits_of(value) >> kShift]; }

private:
  static constexpr unsigned kShift = 20;
  static float value_of(unsigned pattern, unsigned fraction, bool has_infinity) {
    const unsigned ones = (1u << (7 - fraction)) - 1, all = (1u << fraction) - 1;
    const unsigned exponent = pattern >> fraction & ones, rest = pattern & all;
    const float sign = pattern & 0x80 ? -1.0f : 1.0f;
    if (exponent == ones && has_infinity && rest == 0)
      return sign * HUGE_VALF;
    if (exponent == ones && (has_infinity || rest == all))
      return std::copysign(std::nanf(""), sign);
    const int bias = static_cast<int>(ones / 2 + fraction);
    const auto units = static_cast<float>(exponent ? rest + all + 1 : rest);
    return sign * std::ldexp(units, static_cast<int>(exponent ? exponent : 1) - bias);
  }
  std::array<float, 256> values_;
  std::array<uint8_t, 4096> bits_;
};

struct F8 {
  using Bits = uint8_t;
  const F8Table &table;
  Bits bits(double value) const { return table.bits(static_cast<float>(value)); }
  double value(Bits bits) const { return table.value(bits); }
};
F8 f8(DType dtype) {
  static const F8Table e4m3(3, false), e5m2(2, true);
  return {dtype == DType::F8E4M3 ? e4m3 : e5m2};
}

template <class T> struct Whole {
  using Bits = T;
  T bits(double value) const {
    constexpr double kLeast = std::numeric_limits<T>::min(), kMost = std::numeric_limits<T>::max();
    return static_cast<T>(value >= kLeast && value <= kMost ? value : 0.0);
  }
  double value(T bits) const { return bits; }
};

struct Truth {
  using Bits = uint8_t;
  uint8_t bits(double value) const { return value != 0; }
  double value(uint8_t bits) const { return bits; }
};

// --- rows of them

template <class Format>
inline __attribute__((always_inline)) bool pack_as(const double *from, char *to, size_t n,
                                                   Format format) {
  auto *packed = reinterpret_cast<typename Format::Bits *>(to);
  uint64_t wrong = 0;
  for (size_t i = 0; i < n; ++i) {
    packed[i] = format.bits(from[i]);
    const double got = format.value(packed[i]);
    wrong |= static_cast<uint64_t>((from[i] != got) & (from[i] == from[i]));
  }
  return !wrong;
}
template <class Format>
inline __attribute__((always_inline)) void unpack_as(const char *from, double *to, size_t n,
                                                     Format format) {
  const auto *packed = reinterpret_cast<const typename Format::Bits *>(from);
  for (size_t i = 0; i < n; ++i)
    to[i] = format.value(packed[i]);
}

// A loop for several widths can be no template.
#define SPMD_PACKED_ROWS(Format)                                                                   \
  SPMD_WIDE_LOOP bool pack_row(const double *from, char *to, size_t n, Format format) {            \
    return pack_as(from, to, n, format);                                                           \
  }                                                                                                \
  SPMD_WIDE_LOOP void unpack_row(const char *from, double *to, size_t n, Format format) {          \
    unpack_as(from, to, n, format);                                                                \
  }
SPMD_PACKED_ROWS(F32)
SPMD_PACKED_ROWS(BF16)
SPMD_PACKED_ROWS(F16)
SPMD_PACKED_ROWS(F8)
SPMD_PACKED_ROWS(Truth)
SPMD_PACKED_ROWS(Whole<int8_t>)
SPMD_PACKED_ROWS(Whole<int16_t>)
SPMD_PACKED_ROWS(Whole<int32_t>)
SPMD_PACKED_ROWS(Whole<uint8_t>)
SPMD_PACKED_ROWS(Whole<uint16_t>)
SPMD_PACKED_ROWS(Whole<uint32_t>)

// Calls `f` with the format of the type.
template <class F> auto with_format(DType dtype, F f) {
  switch (dtype) {
  case DType::F32:
    return f(F32());
  case DType::BF16:
    return f(BF16());
  case DType::F16:
    return f(F16());
  case DType::F8E4M3:
  case DType::F8E5M2:
    return f(f8(dtype));
  case DType::I8:
    return f(Whole<int8_t>());
  case DType::I16:
    return f(Whole<int16_t>());
  case DType::I32:
    return f(Whole<int32_t>());
  case DType::Bool:
    return f(Truth());
  case DType::U8:
    return f(Whole<uint8_t>());
  case DType::U16:
    return f(Whole<uint16_t>());
  case DType::U32:
    return f(Whole<uint32_t>());
  default:
    SPMD_CHECK(false, "an element type that takes as many bytes as its cell");
  }
}

} // namespace

size_t packed_size(DType dtype, Domain domain) {
  const ir::DTypeInfo &info = ir::info(dtype);
  const bool is_float = info.form == ir::DTypeClass::Float || info.form == ir::DTypeClass::Complex;
  if (domain == Domain::Field || (domain == Domain::F64 && is_float))
    return 0;
  const size_t cell = info.form == ir::DTypeClass::Complex ? sizeof(Complex) : sizeof(double);
  return info.bytes < cell ? info.bytes : 0;
}

bool pack(const double *cells, DType dtype, char *to, size_t n) {
  return with_format(dtype, [&](auto format) { return pack_row(cells, to, n, format); });
}
void unpack(const char *from, DType dtype, double *cells, size_t n) {
  with_format(dtype, [&](auto format) { unpack_row(from, cells, n, format); });
}

bool pack(const Tensor &tensor, char *to) {
  if (tensor.is_complex()) {
    const std::vector<Complex> &cells = tensor.of<Complex>();
    return pack(reinterpret_cast<const double *>(cells.data()), DType::F32, to, 2 * cells.size());
  }
  return pack(tensor.of<double>().data(), tensor.dtype, to, tensor.of<double>().size());
}
void unpack(const char *from, Tensor &tensor) {
  if (tensor.is_complex()) {
    std::vector<Complex> &cells = tensor.of<Complex>();
    return unpack(from, DType::F32, reinterpret_cast<double *>(cells.data()), 2 * cells.size());
  }
  unpack(from, tensor.dtype, tensor.of<double>().data(), tensor.of<double>().size());
}

// --- sums of two

namespace {

SPMD_WIDE_LOOP void add_row(const float *a, const float *b, float *to, size_t n) {
  for (size_t i = 0; i < n; ++i)
    to[i] = a[i] + b[i];
}
SPMD_WIDE_LOOP void add_row(const uint16_t *a, const uint16_t *b, uint16_t *to, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float sum =
        float_of(static_cast<uint32_t>(a[i]) << 16) + float_of(static_cast<uint32_t>(b[i]) << 16);
    const uint32_t bits = bits_of(sum);
    const uint32_t nearest = bits + 0x7fff + (bits >> 16 & 1); // ties to even
    to[i] = static_cast<uint16_t>((sum == sum ? nearest : bits) >> 16);
  }
}
template <class T> bool add_rows_of(const char *a, const char *b, char *to, size_t n) {
  add_row(reinterpret_cast<const T *>(a), reinterpret_cast<const T *>(b), reinterpret_cast<T *>(to),
          n);
  return true;
}

} // namespace

bool add_packed(DType dtype, const char *a, const char *b, char *to, size_t n) {
  return dtype == DType::F32    ? add_rows_of<float>(a, b, to, n)
         : dtype == DType::BF16 ? add_rows_of<uint16_t>(a, b, to, n)
                                : false;
}

} // namespace spmd::runtime
