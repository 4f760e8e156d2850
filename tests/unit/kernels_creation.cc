// Constants and optimizer steps by known values, random numbers by what they are drawn from and
// for; every row of these families has a kernel, or an equation that is its value.
#include "tests/unit/catch.h"
#include "tests/unit/kernel_case.h"

#include "rules/ops/families.h"
#include "runtime/equation/equation.h"

#include <cmath>
#include <numeric>

namespace spmd::runtime {
namespace {

using Numbers = std::vector<double>;

struct KnownCase {
  const char *inputs, *statement;
  std::vector<Numbers> args, results;
};

const KnownCase kKnown[] = {
    {"", "%y: i64[4] R = aten.arange.default { end = 4 }", {}, {{0, 1, 2, 3}}},
    {"", "%y: i64[3] R = aten.arange.start { start = 2, end = 8, step = 2 }", {}, {{2, 4, 6}}},
    {"", "%y: f64[3] R = linspace { start = -1.0, end = 1.0, steps = 3 }", {}, {{-1, 0, 1}}},
    {"", "%y: f64[3] R = logspace { start = 0.0, end = 2.0, steps = 3 }", {}, {{1, 10, 100}}},
    {"", "%y: f64[2, 3] R = eye { n = 2, m = 3 }", {}, {{1, 0, 0, 0, 1, 0}}},
    {"", "%y: f64[2, 2] R = full { size = [2, 2], fill_value = 7 }", {}, {{7, 7, 7, 7}}},
    {"", "%y: f64[2] R = ones { size = [2] }", {}, {{1, 1}}},
    {"", "%y: i64[] R = scalar_tensor { s = 5 }", {}, {{5}}},
    {"", "%y: i64[2, 3] R = tril_indices { row = 2, col = 2 }", {}, {{0, 1, 1, 0, 0, 1}}},
    {"", "%y: i64[2, 3] R = iota { shape = [2, 3], dimension = 1 }", {}, {{0, 1, 2, 0, 1, 2}}},
    {"f64[2]", "%y = full_like %0 { fill_value = 3.0 }", {{1, 2}}, {{3, 3}}},
    {"f64[2]", "%y = ones_like %0", {{1, 2}}, {{1, 1}}},
    {"f64[2]", "%y = aten.fill.Scalar %0, 4.0", {{1, 2}}, {{4, 4}}},
    // One step from nothing: every element moves by the rate, towards less.
    {"f64[2]; f64[2]; f64[2]; f64[2]",
     "%p, %m, %v = adam_step %0, %1, %2, %3 { lr = 0.1, eps = 0.0 }",
     {{1, 1}, {2, -4}, {0, 0}, {0, 0}},
     {{0.9, 1.1}, {0.2, -0.4}, {0.004, 0.016}}},
    {"f64[1]; f64[1]; f64[1]",
     "%p, %m = sgd_step %0, %1, %2 { lr = 0.5, momentum = 0.5, weight_decay = 1.0 }",
     {{1}, {2}, {4}},
     {{-1.5}, {5}}},
    {"f64[1]; f64[1]; f64[1]",
     "%p, %v = adagrad_step %0, %1, %2 { lr = 0.5, eps = 0.0 }",
     {{1}, {3}, {16}},
     {{0.7}, {25}}},
    {"f32[]; f32[]; i32[]",
     "%s, %k = update_scale %0, %1, %2 { growth_interval = 3 }",
     {{8}, {0}, {2}},
     {{16}, {0}}},
};

} // namespace

TEST_CASE("constants and optimizer steps give known values") {
  for (const KnownCase &each : kKnown) {
    INFO(each.statement);
    KernelCase test(each.inputs, each.statement);
    CHECK(test.problem == "");
    if (!test.problem.empty())
      continue;
    for (size_t i = 0; i < each.args.size(); ++i)
      test.args[i].of<double>() = each.args[i];
    CHECK(test.run() == "");
    for (size_t r = 0; r < each.results.size(); ++r)
      for (size_t i = 0; i < each.results[r].size(); ++i)
        CHECK(std::abs(test.results[r].of<double>()[i] - each.results[r][i]) < 1e-12);
  }
}

namespace {

// Runs a random row for a block of a whole.
Numbers drawn(KernelCase &test, Dims first, Dims block, Dims whole, uint64_t stream = 0) {
  Tensor to = Tensor::make(ir::DType::F64, block, Domain::Declared);
  View<double> view{&to.dims, to.of<double>().data(), to.dtype, &first, &whole};
  KernelContext at = test.context();
  at.seed = 3, at.op = 5, at.stream = stream;
  CHECK(!test.kernel()->real({at, {}, {view}}));
  return to.of<double>();
}

} // namespace

TEST_CASE("a block draws what the whole draws there") {
  KernelCase test("", "%y: f64[8, 6] R = rand { size = [8, 6] }");
  REQUIRE(test.problem == "");
  Numbers whole = drawn(test, {0, 0}, {8, 6}, {8, 6});
  Numbers block = drawn(test, {2, 3}, {4, 2}, {8, 6});
  for (size_t r = 0; r < 4; ++r)
    for (size_t c = 0; c < 2; ++c)
      CHECK(block[r * 2 + c] == whole[(r + 2) * 6 + c + 3]);
  CHECK(drawn(test, {0, 0}, {8, 6}, {8, 6}, 1) != whole);
}

TEST_CASE("moments of random numbers") {
  struct Moments {
    const char *statement;
    double mean, deviation;
  };
  const Moments cases[] = {
      {"%y: f64[40000] R = rand { size = [40000] }", 0.5, std::sqrt(1.0 / 12)},
      {"%y: f64[40000] R = randn { size = [40000] }", 0, 1},
      {"%y: i64[40000] R = randint { low = 2, high = 5, size = [40000] }", 3, std::sqrt(2.0 / 3)},
  };
  for (const Moments &each : cases) {
    INFO(each.statement);
    KernelCase test("", each.statement);
    REQUIRE(test.problem == "");
    REQUIRE(test.run() == "");
    const Numbers &cells = test.results[0].of<double>();
    auto n = static_cast<double>(cells.size());
    double mean = std::accumulate(cells.begin(), cells.end(), 0.0) / n, square = 0;
    for (double cell : cells)
      square += (cell - mean) * (cell - mean) / n;
    CHECK(std::abs(mean - each.mean) < 5 * each.deviation / std::sqrt(n));
    CHECK(std::abs(std::sqrt(square) - each.deviation) < 0.03 * each.deviation);
  }
}

TEST_CASE("dropout keeps its share, scaled, and its gradient is where it kept") {
  KernelCase test("f64[10000]", "%y, %m = dropout %0 { p = 0.25 }");
  REQUIRE(test.problem == "");
  test.args[0].of<double>().assign(10000, 3);
  REQUIRE(test.run() == "");
  const Numbers &y = test.results[0].of<double>(), &mask = test.results[1].of<double>();
  double kept = std::accumulate(mask.begin(), mask.end(), 0.0);
  CHECK(std::abs(kept - 7500) < 250);
  llvm::Expected<Numbers> gradient = test.vjp(0, 0, {Numbers(10000, 1), {}});
  REQUIRE(bool(gradient));
  for (size_t i = 0; i < y.size(); ++i) {
    CHECK(y[i] == (mask[i] != 0 ? 4 : 0));
    CHECK((*gradient)[i] * 3 == y[i]);
  }
}

TEST_CASE("the words of threefry are those of its authors") {
  KernelCase test("u32[1]; u32[1]; u32[1]; u32[1]",
                  "%x: u32[1] R, %y: u32[1] R = threefry2x32 %0, %1, %2, %3");
  REQUIRE(test.problem == "");
  REQUIRE(test.run() == "");
  CHECK(test.results[0].of<double>()[0] == 0x6b200159u);
  CHECK(test.results[1].of<double>()[0] == 0x99ba4efeu);
}

} // namespace spmd::runtime
