// Rounding to element types that the machine does not have.
#include "runtime/tensor/tensor.h"

#include "runtime/tensor/precision.h"

#include <bit>
#include <cmath>
#include <limits>

namespace spmd::runtime {

using ir::DType;
using ir::DTypeClass;

namespace {

// A binary float: `bits` of precision, the hidden one included; exponents of normal numbers.
struct FloatFormat {
  DType dtype;
  int bits, least, most;
  double largest;
  bool has_infinity;
};
constexpr FloatFormat kFloats[] = {
    {DType::F8E4M3, 4, -6, 8, 448, false},
    {DType::F8E5M2, 3, -14, 15, 57344, true},
    {DType::BF16, 8, -126, 127, 0x1.FEp127, true},
    {DType::F16, 11, -14, 15, 65504, true},
};

double round_float(double value, const FloatFormat &format) {
  if (!std::isfinite(value) || value == 0)
    return std::isinf(value) && !format.has_infinity ? std::numeric_limits<double>::quiet_NaN()
                                                     : value;
  int exponent = std::max(std::ilogb(value), format.least);
  double unit = std::ldexp(1.0, exponent - (format.bits - 1));
  double nearest = std::nearbyint(value / unit) * unit; // ties to even
  if (std::abs(nearest) <= format.largest)
    return nearest;
  double beyond = format.has_infinity ? std::numeric_limits<double>::infinity()
                                      : std::numeric_limits<double>::quiet_NaN();
  return std::copysign(beyond, value);
}

// The same in the bits of a double, where the number is normal in the format; else false.
bool round_bits(double &cell, const FloatFormat &format, uint64_t least, uint64_t largest) {
  auto bits = std::bit_cast<uint64_t>(cell);
  uint64_t magnitude = bits & ~(uint64_t(1) << 63);
  if (magnitude < least || magnitude > largest)
    return false;
  const int dropped = 53 - format.bits;
  const uint64_t unit = uint64_t(1) << dropped;
  bits += unit / 2 - 1 + (bits >> dropped & 1); // ties to even
  cell = std::bit_cast<double>(bits & ~(unit - 1));
  return true;
}

void round_floats(std::vector<double> &cells, const FloatFormat &format) {
  auto least = std::bit_cast<uint64_t>(std::ldexp(1.0, format.least));
  auto largest = std::bit_cast<uint64_t>(format.largest);
  for (double &cell : cells)
    if (cell != 0 && !round_bits(cell, format, least, largest))
      cell = round_float(cell, format);
}

double wrapped(double value, const ir::DTypeInfo &integer, bool is_signed) {
  if (!std::isfinite(value))
    return 0;
  value = std::trunc(value) + 0.0; // no integer is -0
  // Beyond 2^53 a double has no units left to wrap.
  if (integer.bytes == 8)
    return value;
  double range = std::ldexp(1.0, static_cast<int>(integer.bytes) * 8);
  double low = is_signed ? -range / 2 : 0;
  return value - range * std::floor((value - low) / range);
}

bool is_signed(DType dtype) {
  return dtype == DType::I8 || dtype == DType::I16 || dtype == DType::I32 || dtype == DType::I64;
}

} // namespace

Tensor Tensor::make(DType dtype, Dims dims, Domain domain) {
  Tensor made{dtype, std::move(dims), {}};
  auto size = static_cast<size_t>(made.size());
  if (domain == Domain::Field)
    made.cells = std::vector<Residue>(size);
  else if (ir::info(dtype).form == DTypeClass::Complex)
    made.cells = std::vector<Complex>(size);
  else
    made.cells = std::vector<double>(size);
  return made;
}

double rounded(double value, DType dtype) {
  const ir::DTypeInfo &info = ir::info(dtype);
  switch (info.form) {
  case DTypeClass::Boolean:
    return value != 0;
  case DTypeClass::Integer:
    return wrapped(value, info, is_signed(dtype));
  case DTypeClass::Complex:
    return dtype == DType::C64 ? static_cast<float>(value) : value;
  case DTypeClass::Float:
  case DTypeClass::Unknown:
    break;
  }
  if (dtype == DType::F32)
    return static_cast<float>(value);
  for (const FloatFormat &format : kFloats)
    if (format.dtype == dtype)
      return round_float(value, format);
  return value;
}

void round_cells(Tensor &tensor, Domain domain) {
  DTypeClass form = ir::info(tensor.dtype).form;
  bool is_float = form == DTypeClass::Float || form == DTypeClass::Complex;
  if (domain == Domain::Field || (domain == Domain::F64 && is_float) ||
      tensor.dtype == DType::F64 || tensor.dtype == DType::C128)
    return;
  if (tensor.is_complex()) {
    for (Complex &cell : tensor.of<Complex>())
      cell = {static_cast<float>(cell.real()), static_cast<float>(cell.imag())};
    return;
  }
  if (tensor.dtype == DType::F32) {
    std::vector<double> &cells = tensor.of<double>();
    return round_to_floats(cells.data(), cells.size());
  }
  for (const FloatFormat &format : kFloats)
    if (format.dtype == tensor.dtype)
      return round_floats(tensor.of<double>(), format);
  for (double &cell : tensor.of<double>())
    cell = rounded(cell, tensor.dtype);
}

double unit_roundoff(DType dtype) {
  switch (dtype) {
  case DType::F64:
  case DType::C128:
    return 0x1p-53;
  case DType::F32:
  case DType::C64:
    return 0x1p-24;
  case DType::Unknown:
    return 0;
  default:
    for (const FloatFormat &format : kFloats)
      if (format.dtype == dtype)
        return std::ldexp(1.0, -format.bits);
    return 0;
  }
}

} // namespace spmd::runtime
