// Loops over many numbers, and work that is done once: against the plain forms.
#include "runtime/backends/deduplication.h"
#include "runtime/loops/exponentials.h"
#include "runtime/loops/row_loops.h"
#include "runtime/tensor/f32_cache.h"
#include "runtime/tensor/precision.h"

#include "ir/support/store.h"
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

TEST_CASE("exponentials that vanish, among others") {
  std::vector<double> cells = {1, -kInfinity, -745.5, -746.5, -1e6, -699, -701, -744.3};
  cells.resize(64, -1e5);
  std::vector<double> few = {1, -kInfinity, -747, -1e6, -699, -1e300};
  for (std::vector<double> *each : {&cells, &few}) {
    std::vector<double> to(each->size());
    exponentials(each->data(), 0, to.data(), to.size());
    for (size_t i = 0; i < to.size(); ++i)
      CHECK(std::abs(to[i] - std::exp((*each)[i])) <= 5e-16 * std::exp((*each)[i]));
  }
}

TEST_CASE("the normal distribution is that of the library") {
  for (double most : {0.5, 4.0, 15.9, 40.0}) {
    std::vector<double> x = numbers(1003, most), below(x.size()), density(x.size());
    normal_distribution(x.data(), below.data(), density.data(), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      double share = 0.5 * std::erfc(-x[i] * std::sqrt(0.5));
      double dense = std::exp(-x[i] * x[i] / 2) / std::sqrt(2 * M_PI);
      CHECK(std::abs(below[i] - share) <= 6e-14 * share);
      CHECK(std::abs(density[i] - dense) <= 2e-14 * dense);
    }
  }
  std::vector<double> x = {kInfinity, -kInfinity, std::nan("")}, below(3), density(3);
  normal_distribution(x.data(), below.data(), density.data(), 3);
  CHECK(below[0] == 1);
  CHECK(below[1] == 0);
  CHECK(std::isnan(below[2]));
}

TEST_CASE("sums of rows of any length") {
  for (size_t n : {0, 1, 7, 8, 9, 64, 1003}) {
    std::vector<double> a = numbers(n, 3), b = numbers(n, 5);
    double sum = 0, product = 0, squares = 0, most = -kInfinity;
    for (size_t i = 0; i < n; ++i) {
      sum += a[i], product += a[i] * b[i], squares += (a[i] - 0.5) * (a[i] - 0.5);
      most = std::max(most, a[i]);
    }
    CHECK(std::abs(row_sum(a.data(), n) - sum) <= 1e-11);
    CHECK(std::abs(row_dot(a.data(), b.data(), n) - product) <= 1e-11);
    CHECK(std::abs(row_squares(a.data(), 0.5, n) - squares) <= 1e-11);
    CHECK(row_largest(a.data(), n) == most);
  }
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
  F32Cache f32_cache;
  CHECK(f32_cache.of(cells.data(), 2)[1] == 2);
  cells[1] = 3;
  CHECK(f32_cache.of(cells.data(), 2)[1] == 2);
  f32_cache.clear();
  CHECK(f32_cache.of(cells.data(), 2)[1] == 3);
}

TEST_CASE("work of equal keys is done once, by the first") {
  Deduplication deduplication;
  for (int round = 0; round < 2; ++round) {
    deduplication.begin(2);
    for (uint64_t key : {5, 6, 5, 7, 6}) {
      llvm::MutableArrayRef<uint64_t> words = deduplication.next();
      words[0] = key, words[1] = ~uint64_t(0);
    }
    deduplication.end();
    CHECK(deduplication.firsts().vec() == std::vector<uint32_t>({0, 1, 3}));
    CHECK(deduplication.done_by().vec() == std::vector<uint32_t>({0, 1, 0, 2, 1}));
  }
}
