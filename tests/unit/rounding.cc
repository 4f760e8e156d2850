// Rounding of whole tensors against that of single numbers.
#include "runtime/tensor/tensor.h"

#include "tests/unit/catch.h"

#include <bit>
#include <cmath>
#include <random>

namespace spmd::test {

using runtime::Tensor;

TEST_CASE("tensors are rounded as their numbers are") {
  std::mt19937_64 random(1);
  for (ir::DType dtype : {ir::DType::F32, ir::DType::BF16, ir::DType::F16, ir::DType::F8E4M3,
                          ir::DType::F8E5M2, ir::DType::I8, ir::DType::Bool}) {
    constexpr int64_t kCount = 20000;
    Tensor tensor = Tensor::make(dtype, {kCount}, runtime::Domain::Declared);
    std::vector<double> &cells = tensor.of<double>();
    for (double &cell : cells) {
      cell = std::bit_cast<double>(random());
      if (random() % 4) // most of them within the range of the format
        cell = std::ldexp(static_cast<double>(random() % 4096) - 2048,
                          static_cast<int>(random() % 40) - 30);
    }
    cells[0] = 448, cells[1] = 464, cells[2] = 465, cells[3] = -65520, cells[4] = INFINITY;
    std::vector<double> before = cells;
    round_cells(tensor, runtime::Domain::Declared);
    for (int64_t i = 0; i < kCount; ++i) {
      double want = runtime::rounded(before[static_cast<size_t>(i)], dtype);
      double got = cells[static_cast<size_t>(i)];
      INFO(before[static_cast<size_t>(i)]);
      REQUIRE((std::bit_cast<uint64_t>(got) == std::bit_cast<uint64_t>(want) ||
               (std::isnan(got) && std::isnan(want))));
    }
  }
}

} // namespace spmd::test
