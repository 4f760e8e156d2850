// Elements to bytes and back. Floats that the machine lacks go by their fields: sign, exponent,
// fraction.
#include "runtime/tensor/element_bytes.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace spmd::runtime {

using ir::DType;

namespace {

constexpr double kLargestExact = 9007199254740992.0; // 2^53

struct SmallFloat {
  DType dtype;
  unsigned fraction, exponent; // bits
  bool has_infinity;           // without it, all ones but for the last pattern are numbers
};
constexpr SmallFloat kSmallFloats[] = {
    {DType::F8E4M3, 3, 4, false},
    {DType::F8E5M2, 2, 5, true},
    {DType::BF16, 7, 8, true},
    {DType::F16, 10, 5, true},
};

const SmallFloat *small_float(DType dtype) {
  for (const SmallFloat &format : kSmallFloats)
    if (format.dtype == dtype)
      return &format;
  return nullptr;
}

int bias(const SmallFloat &format) { return (1 << (format.exponent - 1)) - 1; }

double decode(uint32_t bits, const SmallFloat &format) {
  uint32_t fraction = bits & ((1u << format.fraction) - 1);
  uint32_t ones = (1u << format.exponent) - 1;
  uint32_t exponent = bits >> format.fraction & ones;
  double sign = bits >> (format.fraction + format.exponent) & 1 ? -1 : 1;
  bool special =
      exponent == ones && (format.has_infinity || fraction == (1u << format.fraction) - 1);
  if (special)
    return format.has_infinity && fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                                                : std::numeric_limits<double>::quiet_NaN();
  int shift = static_cast<int>(format.fraction);
  double units = exponent ? fraction + std::ldexp(1.0, shift) : fraction;
  int power = exponent ? static_cast<int>(exponent) - bias(format) : 1 - bias(format);
  return sign * std::ldexp(units, power - shift);
}

// The value is one that the format has.
uint32_t encode(double value, const SmallFloat &format) {
  uint32_t sign = std::signbit(value) ? 1u << (format.fraction + format.exponent) : 0;
  uint32_t ones = ((1u << format.exponent) - 1) << format.fraction;
  if (std::isnan(value))
    return sign | ones |
           (format.has_infinity ? 1u << (format.fraction - 1) : (1u << format.fraction) - 1);
  if (std::isinf(value))
    return sign | ones;
  value = std::abs(value);
  int least = 1 - bias(format);
  int power = value == 0 ? least : std::max(std::ilogb(value), least);
  auto units = static_cast<uint32_t>(std::ldexp(value, static_cast<int>(format.fraction) - power));
  bool normal = units >> format.fraction;
  return sign | (normal ? static_cast<uint32_t>(power + bias(format)) << format.fraction : 0) |
         (units & ((1u << format.fraction) - 1));
}

template <class T> T load(const char *at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T> void store(T value, char *at) { std::memcpy(at, &value, sizeof value); }

// Numbers of one machine type.
template <class T> double read_as(const char *at) { return static_cast<double>(load<T>(at)); }
// What the type cannot hold becomes the nearest number that it can.
template <class T> void write_as(double value, char *at) {
  if constexpr (std::is_integral_v<T>) {
    constexpr auto kLeast = static_cast<double>(std::numeric_limits<T>::min());
    constexpr auto kMost = static_cast<double>(std::numeric_limits<T>::max());
    if (!(value > kLeast && value < kMost))
      return store(value >= kMost    ? std::numeric_limits<T>::max()
                   : value <= kLeast ? std::numeric_limits<T>::min()
                                     : T(0),
                   at);
  }
  store(static_cast<T>(value), at);
}

double read_real(const char *at, DType dtype) {
  switch (dtype) {
  case DType::Bool:
    return *at != 0;
  case DType::I8:
    return read_as<int8_t>(at);
  case DType::I16:
    return read_as<int16_t>(at);
  case DType::I32:
    return read_as<int32_t>(at);
  case DType::I64:
    return read_as<int64_t>(at);
  case DType::U8:
    return read_as<uint8_t>(at);
  case DType::U16:
    return read_as<uint16_t>(at);
  case DType::U32:
    return read_as<uint32_t>(at);
  case DType::U64:
    return read_as<uint64_t>(at);
  case DType::F32:
    return read_as<float>(at);
  case DType::F64:
    return read_as<double>(at);
  default:
    break;
  }
  const SmallFloat &format = *small_float(dtype);
  return decode(ir::info(dtype).bytes == 1 ? load<uint8_t>(at) : load<uint16_t>(at), format);
}

void write_real(double value, char *at, DType dtype) {
  switch (dtype) {
  case DType::Bool:
    return write_as<uint8_t>(value != 0, at);
  case DType::I8:
    return write_as<int8_t>(value, at);
  case DType::I16:
    return write_as<int16_t>(value, at);
  case DType::I32:
    return write_as<int32_t>(value, at);
  case DType::I64:
    return write_as<int64_t>(value, at);
  case DType::U8:
    return write_as<uint8_t>(value, at);
  case DType::U16:
    return write_as<uint16_t>(value, at);
  case DType::U32:
    return write_as<uint32_t>(value, at);
  case DType::U64:
    return write_as<uint64_t>(value, at);
  case DType::F32:
    return write_as<float>(value, at);
  case DType::F64:
    return write_as<double>(value, at);
  default:
    break;
  }
  const SmallFloat &format = *small_float(dtype);
  uint32_t bits = encode(rounded(value, dtype), format);
  if (ir::info(dtype).bytes == 1)
    store(static_cast<uint8_t>(bits), at);
  else
    store(static_cast<uint16_t>(bits), at);
}

void unpack_complex(llvm::StringRef bytes, Tensor &tensor) {
  bool wide = tensor.dtype == DType::C128;
  DType part = wide ? DType::F64 : DType::F32;
  size_t step = wide ? 8 : 4;
  const char *at = bytes.data();
  for (Complex &cell : tensor.of<Complex>()) {
    cell = {read_real(at, part), read_real(at + step, part)};
    at += 2 * step;
  }
}

} // namespace

llvm::Error make_error(std::string text) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), "%s", text.c_str());
}

llvm::Error unpack_elements(llvm::StringRef bytes, Tensor &tensor) {
  if (tensor.is_complex()) {
    unpack_complex(bytes, tensor);
    return llvm::Error::success();
  }
  size_t step = ir::info(tensor.dtype).bytes;
  bool wide_integer = tensor.dtype == DType::I64 || tensor.dtype == DType::U64;
  std::vector<double> &cells = tensor.of<double>();
  for (size_t i = 0; i < cells.size(); ++i) {
    cells[i] = read_real(bytes.data() + i * step, tensor.dtype);
    if (wide_integer && std::abs(cells[i]) > kLargestExact)
      return make_error(fmt::format("the whole number at {} is beyond 2^53",
                                    print_place(tensor.dims, static_cast<int64_t>(i))));
  }
  return llvm::Error::success();
}

std::string pack_elements(const Tensor &tensor) {
  auto size = static_cast<size_t>(tensor.size());
  std::string bytes;
  if (tensor.is_field()) {
    bytes.resize(size * 8);
    for (size_t i = 0; i < size; ++i)
      store(tensor.of<Residue>()[i].value(), bytes.data() + i * 8);
    return bytes;
  }
  size_t step = ir::info(tensor.dtype).bytes;
  bytes.resize(size * step);
  if (!tensor.is_complex()) {
    for (size_t i = 0; i < size; ++i)
      write_real(tensor.of<double>()[i], bytes.data() + i * step, tensor.dtype);
    return bytes;
  }
  DType part = tensor.dtype == DType::C128 ? DType::F64 : DType::F32;
  for (size_t i = 0; i < size; ++i) {
    char *at = bytes.data() + i * step;
    write_real(tensor.of<Complex>()[i].real(), at, part);
    write_real(tensor.of<Complex>()[i].imag(), at + step / 2, part);
  }
  return bytes;
}

std::optional<uint64_t> bytes_of(llvm::ArrayRef<int64_t> dims, DType dtype) {
  constexpr uint64_t kMost = uint64_t(1) << 62;
  uint64_t total = ir::info(dtype).bytes;
  for (int64_t dim : dims) {
    if (dim < 0 || (dim > 0 && total > kMost / static_cast<uint64_t>(dim)))
      return std::nullopt;
    total *= static_cast<uint64_t>(dim);
  }
  return total;
}

std::string print_place(llvm::ArrayRef<int64_t> dims, int64_t element) {
  llvm::SmallVector<int64_t, 5> place(dims.size());
  for (size_t i = dims.size(); i-- > 0; element /= dims[i])
    place[i] = element % dims[i];
  return fmt::format("[{}]", fmt::join(place, ", "));
}

std::string print_shape(DType dtype, llvm::ArrayRef<int64_t> dims) {
  return fmt::format("{}[{}]", ir::info(dtype).word, fmt::join(dims, ", "));
}

} // namespace spmd::runtime
