// Attention against its definition, the fused backward against the derivative of the forward.
#include "tests/unit/catch.h"
#include "tests/unit/kernel_case.h"

#include <cmath>

namespace spmd::runtime {
namespace {

void draw(Tensor &tensor, std::mt19937_64 &random) {
  for (double &cell : tensor.of<double>())
    cell = tensor.dtype == ir::DType::Bool ? static_cast<double>(random() % 3 > 0)
                                           : std::normal_distribution<double>()(random);
}
void draw_all(KernelCase &test, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (Tensor &arg : test.args)
    draw(arg, random);
}

// Element [lead, row, column] of a tensor [.., rows, columns].
double at(const Tensor &tensor, int64_t lead, int64_t row, int64_t column) {
  int64_t columns = tensor.dims.back(), rows = tensor.dims[tensor.dims.size() - 2];
  return tensor.of<double>()[static_cast<size_t>((lead * rows + row) * columns + column)];
}

// softmax(q k^T / sqrt(d) + bias) v for head `h`, whose keys are those of head `of`.
double defined(const KernelCase &test, int64_t h, int64_t of, int64_t row, int64_t column,
               bool causal) {
  const Tensor &q = test.args[0], &k = test.args[1], &v = test.args[2];
  int64_t width = q.dims.back(), keys = k.dims[k.dims.size() - 2];
  double sum = 0, total = 0;
  for (int64_t t = 0; t < keys; ++t) {
    double score = 0;
    for (int64_t x = 0; x < width; ++x)
      score += at(q, h, row, x) * at(k, of, t, x);
    score /= std::sqrt(static_cast<double>(width));
    if (test.args.size() > 3) { // [s, t], for all heads
      const Tensor &mask = test.args[3];
      double bias = at(mask, 0, row, t);
      score = mask.dtype != ir::DType::Bool ? score + bias : bias != 0 ? score : -1e300;
    }
    if (causal && t > row)
      continue;
    sum += std::exp(score) * at(v, of, t, column);
    total += std::exp(score);
  }
  return total == 0 ? 0 : sum / total;
}

struct AttentionCase {
  const char *inputs, *statement;
  int64_t group = 1;
  bool causal = false;
};
constexpr AttentionCase kCases[] = {
    {"f64[2, 3, 5, 4]; f64[2, 3, 6, 4]; f64[2, 3, 6, 7]", "%y = attention %0, %1, %2"},
    {"f64[2, 3, 5, 4]; f64[2, 3, 6, 4]; f64[2, 3, 6, 7]; bool[5, 6]",
     "%y = attention %0, %1, %2, %3"},
    {"f64[2, 3, 5, 4]; f64[2, 3, 6, 4]; f64[2, 3, 6, 7]; f64[5, 6]",
     "%y = attention %0, %1, %2, %3"},
    {"f64[2, 3, 5, 4]; f64[2, 3, 5, 4]; f64[2, 3, 5, 7]", "%y = attention_causal %0, %1, %2", 1,
     true},
    {"f64[2, 6, 5, 4]; f64[2, 2, 6, 4]; f64[2, 2, 6, 7]", "%y = attention_grouped %0, %1, %2", 3},
    {"f64[2, 3, 5, 4]; f64[2, 3, 5, 4]; f64[2, 3, 5, 7]",
     "%y, %l = attention_fused %0, %1, %2 { is_causal = true }", 1, true},
    {"f64[2, 6, 5, 4]; f64[2, 2, 5, 4]; f64[2, 2, 5, 7]",
     "%y = attention_grouped_causal %0, %1, %2", 3, true},
    {"f64[2, 3, 1, 4]; f64[2, 3, 1, 4]; f64[2, 3, 1, 1]", "%y = attention_causal %0, %1, %2", 1,
     true},
    {"f64[2, 2, 3, 4]; f64[2, 2, 6, 4]; f64[2, 2, 6, 7]; bool[1, 1, 3, 6]",
     "%y = attention %0, %1, %2, %3"},
};

} // namespace

TEST_CASE("attention is what its definition says") {
  for (const AttentionCase &each : kCases) {
    INFO(each.statement << " of " << each.inputs);
    KernelCase test(each.inputs, each.statement);
    REQUIRE(test.problem == "");
    draw_all(test, 1);
    REQUIRE(test.run() == "");
    CHECK(test.has_commands());
    const Tensor &y = test.results[0];
    int64_t heads = y.dims[0] * y.dims[1];
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t row = 0; row < y.dims[2]; ++row)
        for (int64_t c = 0; c < y.dims[3]; ++c) {
          double want = defined(test, h, h / each.group, row, c, each.causal);
          CHECK(std::abs(at(y, h, row, c) - want) < 1e-12);
        }
    std::mt19937_64 random(2);
    CHECK(gradient_problem(test, random) == "");
  }
}

TEST_CASE("the fused backward is the derivative of the forward") {
  KernelCase forward("f64[2, 3, 5, 4]; f64[2, 3, 5, 4]; f64[2, 3, 5, 7]",
                     "%y, %l = attention_fused %0, %1, %2 { is_causal = true }");
  draw_all(forward, 3);
  REQUIRE(forward.run() == "");
  KernelCase backward(
      "f64[2, 3, 5, 7]; f64[2, 3, 5, 7]; f64[2, 3, 5, 4]; f64[2, 3, 5, 4]; "
      "f64[2, 3, 5]; f64[2, 3, 5, 7]",
      "%a, %b, %c = attention_backward %0, %1, %2, %3, %4, %5 { is_causal = true }");
  REQUIRE(backward.problem == "");
  std::mt19937_64 random(4);
  draw(backward.args[0], random);
  std::vector<double> g = backward.args[0].of<double>();
  for (size_t i = 0; i < backward.args.size(); ++i) {
    std::optional<KernelCase::Place> place = backward.place_of(static_cast<unsigned>(i));
    REQUIRE(place);
    std::string_view name = backward.row().equation.equation.operands[place->operand].name;
    if (name == "q" || name == "k" || name == "v")
      backward.args[i].cells = forward.args[name == "q" ? 0 : name == "k" ? 1 : 2].cells;
    else if (name == "o" || name == "l")
      backward.args[i].cells = forward.results[name == "l"].cells;
  }
  REQUIRE(backward.run() == "");
  CHECK(backward.has_commands());
  for (unsigned result = 0; result < 3; ++result) {
    const char *names[] = {"q", "k", "v"};
    unsigned operand = forward.row().equation.equation.find_operand(names[result]);
    llvm::Expected<std::vector<double>> want = forward.vjp(operand, 0, {g, {}});
    REQUIRE(bool(want));
    const std::vector<double> &have = backward.results[result].of<double>();
    REQUIRE(have.size() == want->size());
    for (size_t i = 0; i < have.size(); ++i)
      CHECK(std::abs(have[i] - (*want)[i]) < 1e-12);
  }
}

TEST_CASE("heads may stand behind the sequence") {
  KernelCase test("f64[2, 5, 6, 4]; f64[2, 5, 3, 4]; f64[2, 5, 3, 2]",
                  "%y = flash_attn_func %0, %1, %2 { causal = true }");
  REQUIRE(test.problem == "");
  draw_all(test, 5);
  REQUIRE(test.run() == "");
  CHECK(test.has_commands());
  std::mt19937_64 random(6);
  CHECK(gradient_problem(test, random) == "");
}

} // namespace spmd::runtime
