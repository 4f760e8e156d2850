// Elements to bytes and back: the types that cells hold in more bytes as packed.h has them.
#include "runtime/tensor/element_bytes.h"

#include "runtime/tensor/packed.h"

#include "ir/support/check.h"
#include "ir/support/error.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace spmd::runtime {

using ir::DType;

namespace {

constexpr double kLargestExact = 9007199254740992.0; // 2^53

template <class T> T load(const char *at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T> void store(T value, char *at) { std::memcpy(at, &value, sizeof value); }

// What the type cannot hold becomes the nearest number that it can.
template <class T> T nearest(double value) {
  constexpr auto kLeast = static_cast<double>(std::numeric_limits<T>::min());
  constexpr auto kMost = static_cast<double>(std::numeric_limits<T>::max());
  if (value > kLeast && value < kMost)
    return static_cast<T>(value);
  return value >= kMost    ? std::numeric_limits<T>::max()
         : value <= kLeast ? std::numeric_limits<T>::min()
                           : T(0);
}
double nearest(double value, DType dtype) {
  switch (dtype) {
  case DType::I8:
    return nearest<int8_t>(value);
  case DType::I16:
    return nearest<int16_t>(value);
  case DType::I32:
    return nearest<int32_t>(value);
  case DType::U8:
    return nearest<uint8_t>(value);
  case DType::U16:
    return nearest<uint16_t>(value);
  case DType::U32:
    return nearest<uint32_t>(value);
  default:
    return rounded(value, dtype);
  }
}

// As bytes of the type, which takes as many as a cell or fewer.
void pack_cells(const double *cells, DType dtype, char *to, size_t n) {
  switch (dtype) {
  case DType::F64:
    std::memcpy(to, cells, n * sizeof(double));
    return;
  case DType::I64:
    for (size_t i = 0; i < n; ++i)
      store(nearest<int64_t>(cells[i]), to + i * 8);
    return;
  case DType::U64:
    for (size_t i = 0; i < n; ++i)
      store(nearest<uint64_t>(cells[i]), to + i * 8);
    return;
  case DType::Bool:
    for (size_t i = 0; i < n; ++i)
      to[i] = cells[i] != 0;
    return;
  default:
    break;
  }
  if (pack(cells, dtype, to, n))
    return;
  std::vector<double> held(cells, cells + n);
  for (double &cell : held)
    cell = nearest(cell, dtype);
  SPMD_CHECK(pack(held.data(), dtype, to, n), "numbers that the type has");
}
void unpack_cells(const char *from, DType dtype, double *cells, size_t n) {
  switch (dtype) {
  case DType::F64:
    std::memcpy(cells, from, n * sizeof(double));
    return;
  case DType::I64:
    for (size_t i = 0; i < n; ++i)
      cells[i] = static_cast<double>(load<int64_t>(from + i * 8));
    return;
  case DType::U64:
    for (size_t i = 0; i < n; ++i)
      cells[i] = static_cast<double>(load<uint64_t>(from + i * 8));
    return;
  case DType::Bool:
    for (size_t i = 0; i < n; ++i)
      cells[i] = from[i] != 0;
    return;
  default:
    unpack(from, dtype, cells, n);
  }
}

// The real and the imaginary part, one after another.
DType part_of(DType complex) { return complex == DType::C128 ? DType::F64 : DType::F32; }

} // namespace

llvm::Error unpack_elements(llvm::StringRef bytes, Tensor &tensor) {
  if (tensor.is_complex()) {
    std::vector<Complex> &cells = tensor.of<Complex>();
    unpack_cells(bytes.data(), part_of(tensor.dtype), reinterpret_cast<double *>(cells.data()),
                 2 * cells.size());
    return llvm::Error::success();
  }
  std::vector<double> &cells = tensor.of<double>();
  unpack_cells(bytes.data(), tensor.dtype, cells.data(), cells.size());
  if (tensor.dtype != DType::I64 && tensor.dtype != DType::U64)
    return llvm::Error::success();
  for (size_t i = 0; i < cells.size(); ++i)
    if (std::abs(cells[i]) > kLargestExact)
      return make_error(fmt::format("the whole number at {} is beyond 2^53",
                                    print_position(tensor.dims, static_cast<int64_t>(i))));
  return llvm::Error::success();
}

std::string pack_elements(const Tensor &tensor) {
  auto size = static_cast<size_t>(tensor.size());
  std::string bytes;
  if (tensor.is_modular()) {
    bytes.resize(size * 8);
    for (size_t i = 0; i < size; ++i)
      store(tensor.of<Residue>()[i].value(), bytes.data() + i * 8);
    return bytes;
  }
  bytes.resize(size * ir::info(tensor.dtype).bytes);
  if (tensor.is_complex())
    pack_cells(reinterpret_cast<const double *>(tensor.of<Complex>().data()), part_of(tensor.dtype),
               bytes.data(), 2 * size);
  else
    pack_cells(tensor.of<double>().data(), tensor.dtype, bytes.data(), size);
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

std::string print_position(llvm::ArrayRef<int64_t> dims, int64_t element) {
  llvm::SmallVector<int64_t, 5> place(dims.size());
  for (size_t i = dims.size(); i-- > 0; element /= dims[i])
    place[i] = element % dims[i];
  return fmt::format("[{}]", fmt::join(place, ", "));
}

std::string print_shape(DType dtype, llvm::ArrayRef<int64_t> dims) {
  return fmt::format("{}[{}]", ir::info(dtype).word, fmt::join(dims, ", "));
}

} // namespace spmd::runtime
