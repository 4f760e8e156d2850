// Loops over many numbers, and work that is done once: against the plain forms.
#include "runtime/backends/alike.h"
#include "runtime/exponentials.h"
#include "runtime/precision.h"
#include "runtime/singles.h"

#include "ir/store.h"
#include "tests/unit/catch.h"

#include <cmath>
#include <limits>

using namespace spmd;
using namespace spmd::runtime;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Of mixed signs, up to `most`.
std::vector<double> numbers(size_t n, double most) {
  std::vector<double> made;
  for (size_t i = 0; i < n; ++i)
    made.push_back((static_cast<double>(ir::mix(7, i) >> 11) * 0x1p-52 - 1) * most);
  return made;
}

} // namespace

TEST_CASE("exponentials are those of the library up to two units in the last place") {
  for (double most : {0.25, 3.0, 80.0, 699.0, 1000.0}) {
    std::vector<double> from = numbers(1003, most), to(from.size());
    exponentials(from.data(), 0.5, to.data(), to.size());
    for (size_t i = 0; i < from.size(); ++i) {
      double want = std::exp(from[i] - 0.5);
      double unit = want - std::nextafter(want, 0);
      CHECK((to[i] == want || std::abs(to[i] - want) <= 2 * unit));
    }
  }
}

TEST_CASE("exponentials of what is no common number, in place") {
  std::vector<double> cells = {0.0, -0.0, kInfinity, -kInfinity, 710, -800, std::nan("")};
  exponentials(cells.data(), 0, cells.data(), cells.size());
  CHECK(cells[0] == 1);
  CHECK(cells[1] == 1);
  CHECK(cells[2] == kInfinity);
  CHECK(cells[3] == 0);
  CHECK(cells[4] == kInfinity);
  CHECK(cells[5] == 0);
  CHECK(std::isnan(cells[6]));
}

TEST_CASE("neighbours are rounded to floats, each one") {
  for (size_t n : {1, 2, 3, 1024, 1025, 4099}) {
    std::vector<double> cells = numbers(n, 1e3), want = cells;
    cells[n / 2] = want[n / 2] = 1e300;
    for (double &cell : want)
      cell = static_cast<double>(static_cast<float>(cell));
    round_to_floats(cells.data(), n);
    CHECK(cells == want);
  }
}

TEST_CASE("floats of a tensor are made anew when it has changed") {
  std::vector<double> cells = {1, 2};
  Singles singles;
  CHECK(singles.of(cells.data(), 2)[1] == 2);
  cells[1] = 3;
  CHECK(singles.of(cells.data(), 2)[1] == 2);
  singles.clear();
  CHECK(singles.of(cells.data(), 2)[1] == 3);
}

TEST_CASE("work of equal keys is done once, by the first") {
  Alike alike;
  for (int round = 0; round < 2; ++round) {
    alike.begin(2);
    for (uint64_t key : {5, 6, 5, 7, 6}) {
      llvm::MutableArrayRef<uint64_t> words = alike.next();
      words[0] = key, words[1] = ~uint64_t(0);
    }
    alike.end();
    CHECK(alike.firsts() == llvm::makeArrayRef<uint32_t>({0, 1, 3}));
    CHECK(alike.done_by() == llvm::makeArrayRef<uint32_t>({0, 1, 0, 2, 1}));
  }
}
