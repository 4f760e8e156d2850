// Packed elements are those of files, byte for byte; what a type does not have is refused; sums of
// packed elements are sums in double that are then rounded.
#include "runtime/tensor/packed.h"
#include "runtime/tensor/element_bytes.h"

#include "tests/unit/catch.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

namespace spmd::runtime {
namespace {

using ir::DType;

Tensor of_bytes(const std::string &bytes, DType dtype) {
  const auto size = static_cast<int64_t>(bytes.size() / ir::info(dtype).bytes);
  Tensor tensor = Tensor::make(dtype, {size}, Domain::Declared);
  REQUIRE(llvm::toString(unpack_elements(bytes, tensor)) == "");
  return tensor;
}

// Of the same bits.
bool same_cell(const Tensor &a, const Tensor &b, size_t i) {
  auto bits = [](double cell) { return std::bit_cast<uint64_t>(cell); };
  if (!a.is_complex())
    return bits(a.of<double>()[i]) == bits(b.of<double>()[i]);
  const Complex x = a.of<Complex>()[i], y = b.of<Complex>()[i];
  return bits(x.real()) == bits(y.real()) && bits(x.imag()) == bits(y.imag());
}

bool fits(double cell, DType dtype) {
  std::string bytes(8, '\0');
  return pack(&cell, dtype, bytes.data(), 1);
}

} // namespace

TEST_CASE("packed elements are those of files", "[packed]") {
  std::mt19937_64 random(30);
  for (DType dtype :
       {DType::F32, DType::BF16, DType::F16, DType::F8E4M3, DType::F8E5M2, DType::Bool, DType::I8,
        DType::I16, DType::I32, DType::U8, DType::U16, DType::U32, DType::C64}) {
    const size_t step = ir::info(dtype).bytes;
    CAPTURE(ir::info(dtype).word);
    REQUIRE(packed_size(dtype, Domain::Declared) == step);
    // All patterns of 16 bits, and as many of more.
    std::string bytes(step << 16, '\0');
    for (size_t i = 0; i < 65536; ++i) {
      const uint64_t bits = dtype == DType::Bool ? i & 1 : step > 2 ? random() : i;
      std::memcpy(bytes.data() + i * step, &bits, step);
    }
    const Tensor want = of_bytes(bytes, dtype);
    Tensor got = Tensor::make(dtype, want.dims, Domain::Declared);
    unpack(bytes.data(), got);
    std::string packed(bytes.size(), '?');
    REQUIRE(pack(want, packed.data()));
    // A NaN is one again, but of fewer bits.
    const std::string again = pack_elements(want);
    auto is_nan = [&](size_t i) {
      return want.is_complex() ? std::isnan(std::abs(want.of<Complex>()[i]))
                               : std::isnan(want.of<double>()[i]);
    };
    for (size_t i = 0; i < 65536; ++i)
      if (!is_nan(i)) {
        REQUIRE(same_cell(got, want, i));
        REQUIRE(packed.compare(i * step, step, again, i * step, step) == 0);
      } else if (!want.is_complex()) {
        double cell = 0;
        unpack(packed.data() + i * step, dtype, &cell, 1);
        REQUIRE(std::isnan(cell));
        REQUIRE(std::signbit(cell) == std::signbit(want.of<double>()[i]));
      }
  }
  for (DType dtype : {DType::F64, DType::I64, DType::U64, DType::C128})
    CHECK(packed_size(dtype, Domain::Declared) == 0);
  CHECK(packed_size(DType::F32, Domain::F64) == 0);
  CHECK(packed_size(DType::C64, Domain::F64) == 0);
  CHECK(packed_size(DType::I32, Domain::F64) == 4);
  CHECK(packed_size(DType::Bool, Domain::Field) == 0);
}

TEST_CASE("what a type does not have is not packed", "[packed]") {
  struct Row {
    DType dtype;
    double last; // that it has
    double next; // that it lacks
  };
  for (const Row &row : {Row{DType::F32, 0x1p-149, 0x1p-150},
                         Row{DType::F32, 0x1.fffffep127, 1e39},
                         Row{DType::F32, 0.5, 0.1},
                         Row{DType::BF16, 256, 257},
                         Row{DType::BF16, 0x1p-133, 0x1p-134},
                         Row{DType::F16, 65504, 65536},
                         Row{DType::F16, 0x1p-24, 0x1p-25},
                         Row{DType::F16, 2048, 2049},
                         Row{DType::F8E4M3, 448, 480},
                         Row{DType::F8E4M3, 0x1p-9, 0x1p-10},
                         Row{DType::F8E4M3, -1.125, -1.0625},
                         Row{DType::F8E5M2, 57344, 65536},
                         Row{DType::F8E5M2, -INFINITY, 1.125},
                         Row{DType::F8E4M3, 0, INFINITY},
                         Row{DType::Bool, 1, 2},
                         Row{DType::I8, -128, -129},
                         Row{DType::I8, 127, 128},
                         Row{DType::U8, 255, 256},
                         Row{DType::U8, 0, -1},
                         Row{DType::I16, 32767, 0.5},
                         Row{DType::U16, 65535, 65536},
                         Row{DType::I32, -2147483648.0, -2147483649.0},
                         Row{DType::U32, 4294967295.0, 4294967296.0},
                         Row{DType::I32, 7, INFINITY}}) {
    CAPTURE(ir::info(row.dtype).word, row.last, row.next);
    CHECK(fits(row.last, row.dtype));
    CHECK(!fits(row.next, row.dtype));
  }
}

TEST_CASE("sums of packed elements are rounded sums in double", "[packed]") {
  std::mt19937_64 random(31);
  for (DType dtype : {DType::F32, DType::BF16}) {
    const size_t step = ir::info(dtype).bytes, n = 200000;
    std::string a(n * step, '\0'), b(a), sum(a);
    for (std::string *each : {&a, &b})
      for (char &byte : *each)
        byte = static_cast<char>(random());
    // Every other pair is near in size, so that digits cancel and carry; some end in zeros.
    for (size_t i = 0; i < n; ++i) {
      if (i % 2)
        b[i * step + step - 1] = static_cast<char>(a[i * step + step - 1] ^ (random() % 2 << 7));
      if (i % 3 == 0)
        a[i * step] = b[i * step] = 0;
    }
    REQUIRE(add_packed(dtype, a.data(), b.data(), sum.data(), n));
    const Tensor left = of_bytes(a, dtype), right = of_bytes(b, dtype), got = of_bytes(sum, dtype);
    for (size_t i = 0; i < n; ++i) {
      const double x = left.of<double>()[i], y = right.of<double>()[i], z = got.of<double>()[i];
      const double want = rounded(x + y, dtype);
      CAPTURE(ir::info(dtype).word, x, y, z, want);
      REQUIRE((std::isnan(want) ? std::isnan(z)
                                : std::bit_cast<uint64_t>(z) == std::bit_cast<uint64_t>(want)));
    }
  }
  CHECK(!add_packed(DType::F16, "", "", nullptr, 0));
}

} // namespace spmd::runtime
