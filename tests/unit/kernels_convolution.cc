// Convolutions against the sum that defines them; pools and interpolation by known values; all
// gradients against central differences.
#include "tests/unit/catch.h"
#include "tests/unit/kernel_case.h"

#include <cmath>

namespace spmd::runtime {
namespace {

using Numbers = std::vector<double>;

void draw_all(KernelCase &test, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (Tensor &arg : test.args)
    for (double &cell : arg.of<double>())
      cell = std::normal_distribution<double>()(random);
}

double element(const Tensor &tensor, std::initializer_list<int64_t> at) {
  size_t place = 0, d = 0;
  for (int64_t i : at) {
    if (i < 0 || i >= tensor.dims[d])
      return 0;
    place = place * static_cast<size_t>(tensor.dims[d++]) + static_cast<size_t>(i);
  }
  return tensor.of<double>()[place];
}

} // namespace

TEST_CASE("a convolution is a sum over windows and channels") {
  constexpr int64_t kStride = 2, kPad = 1, kDilation = 2, kGroups = 2;
  KernelCase test("f64[2, 4, 7, 6]; f64[6, 2, 3, 2]; f64[6]",
                  "%y: f64[2, 6, 3, 3] R = convolution %0, %1, %2 { stride = [2, 2], padding = "
                  "[1, 1], dilation = [2, 2], groups = 2 }");
  REQUIRE(test.problem == "");
  draw_all(test, 1);
  REQUIRE(test.run() == "");
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t o = 0; o < 6; ++o)
      for (int64_t p = 0; p < 3; ++p)
        for (int64_t q = 0; q < 3; ++q) {
          double want = element(test.args[2], {o});
          for (int64_t i = 0; i < 2; ++i)
            for (int64_t r = 0; r < 3; ++r)
              for (int64_t s = 0; s < 2; ++s)
                want += element(test.args[0],
                                {b, o / (6 / kGroups) * 2 + i, p * kStride - kPad + r * kDilation,
                                 q * kStride - kPad + s * kDilation}) *
                        element(test.args[1], {o, i, r, s});
          CHECK(std::abs(element(test.results[0], {b, o, p, q}) - want) < 1e-12);
        }
  std::mt19937_64 random(2);
  CHECK(gradient_problem(test, random) == "");
}

TEST_CASE("a transposed convolution is the gradient of a convolution by its image") {
  KernelCase forward("f64[2, 3, 5]; f64[4, 3, 3]",
                     "%y: f64[2, 4, 3] R = convolution %0, %1 { stride = [2], padding = [1] }");
  KernelCase back("f64[2, 4, 3]; f64[4, 3, 3]",
                  "%y: f64[2, 3, 5] R = conv_transpose1d %0, %1 { stride = [2], padding = [1] }");
  REQUIRE(forward.problem == "");
  REQUIRE(back.problem == "");
  draw_all(forward, 3);
  draw_all(back, 4);
  back.args[1].cells = forward.args[1].cells;
  REQUIRE(back.run() == "");
  llvm::Expected<Numbers> want = forward.vjp(0, 0, {back.args[0].of<double>()});
  REQUIRE(bool(want));
  for (size_t i = 0; i < want->size(); ++i)
    CHECK(std::abs((*want)[i] - back.results[0].of<double>()[i]) < 1e-12);
  std::mt19937_64 random(5);
  CHECK(gradient_problem(back, random) == "");
}

struct KnownCase {
  const char *inputs, *statement;
  Numbers arg;
  std::vector<Numbers> results;
};
const KnownCase kKnown[] = {
    {"f64[1, 1, 4]",
     "%y: f64[1, 1, 2] R = avg_pool1d %0 { kernel_size = [2] }",
     {1, 2, 3, 5},
     {{1.5, 4}}},
    {"f64[1, 1, 4]",
     "%y: f64[1, 1, 3] R = avg_pool1d %0 { kernel_size = [2], padding = [1], count_include_pad = "
     "false }",
     {1, 2, 3, 5},
     {{1, 2.5, 5}}},
    {"f64[1, 5]",
     "%y: f64[1, 3] R = adaptive_avg_pool1d %0 { output_size = [3] }",
     {1, 2, 3, 4, 5},
     {{1.5, 3, 4.5}}},
    {"f64[1, 1, 2, 4]",
     "%y: f64[1, 1, 1, 2] R, %i: i64[1, 1, 1, 2] R = max_pool2d_with_indices %0 { kernel_size = "
     "[2, 2] }",
     {1, 7, 3, 3, 9, 2, 3, 3},
     {{9, 3}, {4, 2}}},
    {"f64[1, 1, 2]",
     "%y: f64[1, 1, 4] R = upsample_nearest1d %0 { output_size = [4] }",
     {1, 2},
     {{1, 1, 2, 2}}},
    {"f64[1, 1, 3]",
     "%y: f64[1, 1, 5] R = upsample_linear1d %0 { output_size = [5], align_corners = true }",
     {1, 2, 4},
     {{1, 1.5, 2, 3, 4}}},
    {"f64[1, 1, 2, 3]",
     "%y: f64[1, 4, 2] R = im2col %0 { kernel_size = [2, 2], stride = [1, 1], padding = [0, 0], "
     "dilation = [1, 1] }",
     {1, 2, 3, 4, 5, 6},
     {{1, 2, 2, 3, 4, 5, 5, 6}}},
};

TEST_CASE("pools, interpolation and patches give known values") {
  for (const KnownCase &each : kKnown) {
    INFO(each.statement);
    KernelCase test(each.inputs, each.statement);
    CHECK(test.problem == "");
    if (!test.problem.empty())
      continue;
    test.args[0].of<double>() = each.arg;
    CHECK(test.run() == "");
    for (size_t r = 0; r < each.results.size(); ++r)
      CHECK(test.results[r].of<double>() == each.results[r]);
    draw_all(test, 6);
    std::mt19937_64 random(7);
    CHECK(gradient_problem(test, random) == "");
  }
}

TEST_CASE("gradients of products, samples and distances") {
  const std::pair<const char *, const char *> cases[] = {
      {"f64[3, 4]; f64[3, 2]; f64[2, 4]", "%y = addmm %0, %1, %2 { alpha = 0.5, beta = 2.0 }"},
      {"f64[4]; f64[3, 2]; f64[2, 4]", "%y = addmm %0, %1, %2"},
      {"f64[3]; f64[3, 2]; f64[2]", "%y = addmv %0, %1, %2 { alpha = 3.0 }"},
      {"f64[3, 2]; f64[3]; f64[2]", "%y = addr %0, %1, %2 { alpha = 3.0 }"},
      {"f64[2, 3, 4]; f64[2, 3, 2]; f64[2, 2, 4]", "%y = baddbmm %0, %1, %2 { beta = 0.5 }"},
      {"f64[3, 4]; f64[2, 3, 2]; f64[2, 2, 4]", "%y = addbmm %0, %1, %2 { alpha = 0.5 }"},
      {"f64[2, 3]; f64[3, 2]", "%y = kron %0, %1"},
      {"f64[2, 3]; f64[2, 3]", "%y = cross %0, %1"},
      {"f64[3, 2]; f64[4, 2]", "%y = cdist %0, %1"},
      {"f64[3, 2]; f64[3, 2]", "%y = pairwise_distance %0, %1"},
      {"f64[1, 2, 4, 5]; f64[1, 2, 3, 2]", "%y: f64[1, 2, 2, 3] R = grid_sample %0, %1"},
  };
  for (auto [inputs, statement] : cases) {
    INFO(statement);
    KernelCase test(inputs, statement);
    CHECK(test.problem == "");
    if (!test.problem.empty())
      continue;
    draw_all(test, 8);
    std::mt19937_64 random(9);
    CHECK(gradient_problem(test, random) == "");
  }
}

TEST_CASE("rows of experts are multiplied by the matrices of their experts") {
  KernelCase test("f64[5, 2]; f64[3, 2, 4]; i32[3]", "%y = grouped_mm %0, %1, %2");
  REQUIRE(test.problem == "");
  draw_all(test, 10);
  test.args[2].of<double>() = {2, 2, 5};
  REQUIRE(test.run() == "");
  for (int64_t n = 0; n < 5; ++n)
    for (int64_t m = 0; m < 4; ++m) {
      double want = 0;
      for (int64_t k = 0; k < 2; ++k)
        want += element(test.args[0], {n, k}) * element(test.args[1], {n < 2 ? 0 : 2, k, m});
      CHECK(std::abs(element(test.results[0], {n, m}) - want) < 1e-12);
    }
  std::mt19937_64 random(11);
  CHECK(gradient_problem(test, random) == "");
  KernelCase rows("f64[4, 5]; f64[5, 3]; i32[2]", "%y = grouped_mm_of_rows %0, %1, %2");
  REQUIRE(rows.problem == "");
  draw_all(rows, 12);
  rows.args[2].of<double>() = {2, 5};
  CHECK(gradient_problem(rows, random) == "");
}

} // namespace spmd::runtime
