// Pointwise rows against the functions that they stand for: the equation of a row is right for its
// own function, not only for an arbitrary one (op_rows.cc). Where a refusal has no counterexample
// the row is needlessly strict; those are listed by name, and so are rows without a function here.
#include "rules/kinds/local.h"
#include "rules/ops/families.h"
#include "rules/ops/registry.h"
#include "tests/unit/catch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

namespace spmd::property {
namespace {

using rules::OperandGroup;
using rules::OperandKinds;

using Function = double (*)(double a, double b, double c); // operands in the order of the row

// What the operands are drawn from: sixteenths on both sides of 0, between 0 and 1, from 1 on;
// small whole numbers, some equal; positive ones.
enum class Domain : uint8_t { Signed, Unit, Above, Whole, Positive };

struct ScalarRow {
  std::string_view name;
  Domain domain;
  Function function;
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double normal_cdf(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }
double python_remainder(double a, double b) { return a - b * std::floor(a / b); }
auto whole(double x) { return static_cast<int64_t>(x); }
bool is(double x) { return x != 0; }

// clang-format off
#define UNARY [](double a, double, double) -> double
#define BINARY [](double a, double b, double) -> double
#define TERNARY [](double a, double b, double c) -> double
constexpr ScalarRow kRows[] = {
    {"neg", Domain::Signed, UNARY { return -a; }},
    {"identity", Domain::Signed, UNARY { return a; }},
    {"square", Domain::Signed, UNARY { return a * a; }},
    {"abs", Domain::Signed, UNARY { return std::fabs(a); }},
    {"exp", Domain::Signed, UNARY { return std::exp(a); }},
    {"exp2", Domain::Signed, UNARY { return std::exp2(a); }},
    {"expm1", Domain::Signed, UNARY { return std::expm1(a); }},
    {"sin", Domain::Signed, UNARY { return std::sin(a); }},
    {"cos", Domain::Signed, UNARY { return std::cos(a); }},
    {"sinh", Domain::Signed, UNARY { return std::sinh(a); }},
    {"cosh", Domain::Signed, UNARY { return std::cosh(a); }},
    {"tanh", Domain::Signed, UNARY { return std::tanh(a); }},
    {"sigmoid", Domain::Signed, UNARY { return sigmoid(a); }},
    {"erf", Domain::Signed, UNARY { return std::erf(a); }},
    {"erfc", Domain::Signed, UNARY { return std::erfc(a); }},
    {"atan", Domain::Signed, UNARY { return std::atan(a); }},
    {"asinh", Domain::Signed, UNARY { return std::asinh(a); }},
    {"log", Domain::Unit, UNARY { return std::log(a); }},
    {"log2", Domain::Unit, UNARY { return std::log2(a); }},
    {"log10", Domain::Unit, UNARY { return std::log10(a); }},
    {"log1p", Domain::Unit, UNARY { return std::log1p(a); }},
    {"sqrt", Domain::Unit, UNARY { return std::sqrt(a); }},
    {"rsqrt", Domain::Unit, UNARY { return 1 / std::sqrt(a); }},
    {"reciprocal", Domain::Unit, UNARY { return 1 / a; }},
    {"lgamma", Domain::Unit, UNARY { return std::lgamma(a); }},
    {"acosh", Domain::Above, UNARY { return std::acosh(a); }},
    {"asin", Domain::Unit, UNARY { return std::asin(a); }},
    {"acos", Domain::Unit, UNARY { return std::acos(a); }},
    {"atanh", Domain::Unit, UNARY { return std::atanh(a); }},
    {"tan", Domain::Unit, UNARY { return std::tan(a); }},
    {"logit", Domain::Unit, UNARY { return std::log(a / (1 - a)); }},
    {"relu", Domain::Signed, UNARY { return std::max(a, 0.0); }},
    {"gelu", Domain::Signed, UNARY { return a * normal_cdf(a); }},
    {"silu", Domain::Signed, UNARY { return a * sigmoid(a); }},
    {"elu", Domain::Signed, UNARY { return a > 0 ? a : std::expm1(a); }},
    {"selu", Domain::Signed, UNARY { return 1.0507 * (a > 0 ? a : 1.67326 * std::expm1(a)); }},
    {"celu", Domain::Signed, UNARY { return a > 0 ? a : std::expm1(a); }},
    {"leaky_relu", Domain::Signed, UNARY { return a > 0 ? a : 0.01 * a; }},
    {"mish", Domain::Signed, UNARY { return a * std::tanh(std::log1p(std::exp(a))); }},
    {"softplus", Domain::Signed, UNARY { return std::log1p(std::exp(a)); }},
    {"softsign", Domain::Signed, UNARY { return a / (1 + std::fabs(a)); }},
    {"tanhshrink", Domain::Signed, UNARY { return a - std::tanh(a); }},
    {"hardtanh", Domain::Signed, UNARY { return std::clamp(a, -1.0, 1.0); }},
    {"hardsigmoid", Domain::Signed, UNARY { return std::clamp(a / 6 + 0.5, 0.0, 1.0); }},
    {"hardswish", Domain::Signed, UNARY { return a * std::clamp(a + 3, 0.0, 6.0) / 6; }},
    {"hardshrink", Domain::Signed, UNARY { return std::fabs(a) > 0.5 ? a : 0; }},
    {"softshrink", Domain::Signed, UNARY { return a > 0.5 ? a - 0.5 : a < -0.5 ? a + 0.5 : 0; }},
    {"relu6", Domain::Signed, UNARY { return std::clamp(a, 0.0, 6.0); }},
    {"logsigmoid", Domain::Signed, UNARY { return std::log(sigmoid(a)); }},
    {"ceil", Domain::Signed, UNARY { return std::ceil(a); }},
    {"floor", Domain::Signed, UNARY { return std::floor(a); }},
    {"round", Domain::Signed, UNARY { return std::nearbyint(a); }},
    {"trunc", Domain::Signed, UNARY { return std::trunc(a); }},
    {"frac", Domain::Signed, UNARY { return a - std::trunc(a); }},
    {"sign", Domain::Signed, UNARY { return (a > 0) - (a < 0); }},
    {"sgn", Domain::Signed, UNARY { return (a > 0) - (a < 0); }},
    {"signbit", Domain::Signed, UNARY { return std::signbit(a); }},
    {"angle", Domain::Signed, UNARY { return std::signbit(a) ? M_PI : 0; }},
    {"isnan", Domain::Signed, UNARY { return std::isnan(a); }},
    {"isinf", Domain::Signed, UNARY { return std::isinf(a); }},
    {"isfinite", Domain::Signed, UNARY { return std::isfinite(a); }},
    {"isneginf", Domain::Signed, UNARY { return std::isinf(a) && a < 0; }},
    {"isposinf", Domain::Signed, UNARY { return std::isinf(a) && a > 0; }},
    {"isreal", Domain::Signed, UNARY { return a == a || a != a; }},
    {"nan_to_num", Domain::Signed, UNARY { return std::isnan(a) ? 0 : a; }},
    {"logical_not", Domain::Whole, UNARY { return !is(a); }},
    {"bitwise_not", Domain::Whole, UNARY { return static_cast<double>(~whole(a)); }},
    {"cast_round", Domain::Signed, UNARY { return std::trunc(a); }},
    {"i0", Domain::Unit, UNARY { return std::cyl_bessel_i(0, a); }},
    {"i0e", Domain::Unit, UNARY { return std::cyl_bessel_i(0, a) * std::exp(-a); }},
    {"i1", Domain::Unit, UNARY { return std::cyl_bessel_i(1, a); }},
    {"i1e", Domain::Unit, UNARY { return std::cyl_bessel_i(1, a) * std::exp(-a); }},
    {"ndtr", Domain::Signed, UNARY { return normal_cdf(a); }},
    {"log_ndtr", Domain::Signed, UNARY { return std::log(normal_cdf(a)); }},
    {"erfcx", Domain::Signed, UNARY { return std::exp(a * a) * std::erfc(a); }},
    {"entr", Domain::Unit, UNARY { return -a * std::log(a); }},
    {"bessel_j0", Domain::Unit, UNARY { return std::cyl_bessel_j(0, a); }},
    {"bessel_j1", Domain::Unit, UNARY { return std::cyl_bessel_j(1, a); }},
    {"sinc", Domain::Unit, UNARY { return std::sin(M_PI * a) / (M_PI * a); }},
    {"add", Domain::Signed, BINARY { return a + b; }},
    {"sub", Domain::Signed, BINARY { return a - b; }},
    {"mul", Domain::Signed, BINARY { return a * b; }},
    {"div", Domain::Unit, BINARY { return a / b; }},
    {"ldexp", Domain::Whole, BINARY { return std::ldexp(a, static_cast<int>(b)); }},
    {"xlogy", Domain::Unit, BINARY { return a * std::log(b); }},
    {"xlog1py", Domain::Unit, BINARY { return a * std::log1p(b); }},
    {"bitwise_left_shift", Domain::Positive, BINARY { return a * std::exp2(b); }},
    {"addcmul", Domain::Signed, TERNARY { return a + b * c; }},
    {"addcdiv", Domain::Unit, TERNARY { return a + b / c; }},
    {"lerp", Domain::Signed, TERNARY { return a + c * (b - a); }},
    {"where", Domain::Whole, TERNARY { return is(a) ? b : c; }},
    {"masked_fill", Domain::Whole, TERNARY { return is(b) ? c : a; }},
    {"masked_scale", Domain::Signed, BINARY { return a * b; }},
    {"pow", Domain::Unit, BINARY { return std::pow(a, b); }},
    {"float_power", Domain::Unit, BINARY { return std::pow(a, b); }},
    {"atan2", Domain::Signed, BINARY { return std::atan2(a, b); }},
    {"hypot", Domain::Signed, BINARY { return std::hypot(a, b); }},
    {"logaddexp", Domain::Signed, BINARY { return std::log(std::exp(a) + std::exp(b)); }},
    {"logaddexp2", Domain::Signed, BINARY { return std::log2(std::exp2(a) + std::exp2(b)); }},
    {"heaviside", Domain::Whole, BINARY { return a == 0 ? b : a > 0; }},
    {"nextafter", Domain::Signed, BINARY { return std::nextafter(a, b); }},
    {"maximum", Domain::Signed, BINARY { return std::max(a, b); }},
    {"minimum", Domain::Signed, BINARY { return std::min(a, b); }},
    {"fmax", Domain::Signed, BINARY { return std::fmax(a, b); }},
    {"fmin", Domain::Signed, BINARY { return std::fmin(a, b); }},
    {"copysign", Domain::Signed, BINARY { return std::copysign(a, b); }},
    {"floor_divide", Domain::Signed, BINARY { return std::floor(a / b); }},
    {"remainder", Domain::Signed, BINARY { return python_remainder(a, b); }},
    {"fmod", Domain::Signed, BINARY { return std::fmod(a, b); }},
    {"eq", Domain::Whole, BINARY { return a == b; }},
    {"ne", Domain::Whole, BINARY { return a != b; }},
    {"lt", Domain::Whole, BINARY { return a < b; }},
    {"le", Domain::Whole, BINARY { return a <= b; }},
    {"gt", Domain::Whole, BINARY { return a > b; }},
    {"ge", Domain::Whole, BINARY { return a >= b; }},
    {"isclose", Domain::Whole, BINARY { return std::fabs(a - b) <= 1e-5 * std::fabs(b); }},
    {"logical_and", Domain::Whole, BINARY { return is(a) && is(b); }},
    {"logical_or", Domain::Whole, BINARY { return is(a) || is(b); }},
    {"logical_xor", Domain::Whole, BINARY { return is(a) != is(b); }},
    {"bitwise_and", Domain::Whole, BINARY { return static_cast<double>(whole(a) & whole(b)); }},
    {"bitwise_or", Domain::Whole, BINARY { return static_cast<double>(whole(a) | whole(b)); }},
    {"bitwise_xor", Domain::Whole, BINARY { return static_cast<double>(whole(a) ^ whole(b)); }},
    {"bitwise_right_shift", Domain::Positive,
     BINARY { return std::floor(a / std::exp2(b)); }},
    {"gcd", Domain::Whole, BINARY { return static_cast<double>(std::gcd(whole(a), whole(b))); }},
    {"lcm", Domain::Whole, BINARY { return static_cast<double>(std::lcm(whole(a), whole(b))); }},
    {"clamp", Domain::Signed, TERNARY { return std::min(std::max(a, b), c); }},
    {"prelu", Domain::Signed, BINARY { return a > 0 ? a : b * a; }},
    {"swiglu", Domain::Signed, BINARY { return a * sigmoid(a) * b; }},
    {"geglu", Domain::Signed, BINARY { return a * normal_cdf(a) * b; }},
    {"reglu", Domain::Signed, BINARY { return std::max(a, 0.0) * b; }},
    {"sigmoid_backward", Domain::Signed, BINARY { return a * b * (1 - b); }},
    {"tanh_backward", Domain::Signed, BINARY { return a * (1 - b * b); }},
    {"threshold_backward", Domain::Signed, BINARY { return b > 0 ? a : 0; }},
    {"leaky_relu_backward", Domain::Signed, BINARY { return b > 0 ? a : 0.01 * a; }},
    {"elu_backward", Domain::Signed, BINARY { return b > 0 ? a : a * std::exp(b); }},
    {"softplus_backward", Domain::Signed, BINARY { return a * sigmoid(b); }},
    {"hardtanh_backward", Domain::Signed, BINARY { return std::fabs(b) < 1 ? a : 0; }},
    {"div_backward_other", Domain::Unit, TERNARY { return -a * b / (c * c); }},
};
// clang-format on

// Refused although no data speak against it: finite parts have a finite sum, and the next number is
// nearer than the tolerance.
constexpr std::string_view kNeedlesslyStrict[] = {"isnan",    "isinf",  "isfinite",   "isneginf",
                                                  "isposinf", "isreal", "nan_to_num", "nextafter"};

// Of complex numbers, of several elements, by draws, or nobody has written it down.
constexpr std::string_view kWithoutFunction =
    "detach cast conj real imag select_cases complex polar copy "
    "digamma erfinv quantize bitcast igamma igammac zeta betainc glu "
    "gelu_backward silu_backward hardsigmoid_backward hardswish_backward hardshrink_backward "
    "softshrink_backward mish_backward logit_backward log_sigmoid_backward "
    "rrelu_with_noise_backward glu_backward prelu_backward gamma_gradient swiglu_backward";

enum class K : uint8_t { R, V, P };
constexpr size_t kElements = 6;
using Numbers = std::array<double, kElements>;
using Operands = std::array<Numbers, 3>; // of one rank

double draw(Domain domain, std::mt19937 &random) {
  switch (domain) {
  case Domain::Signed:
    return (static_cast<double>(random() % 33) - 16 + 0.5) / 16;
  case Domain::Unit:
    return static_cast<double>(random() % 15 + 1) / 16;
  case Domain::Above:
    return 1 + static_cast<double>(random() % 32) / 16;
  case Domain::Whole:
    return static_cast<double>(random() % 7) - 3;
  case Domain::Positive:
    return static_cast<double>(random() % 6);
  }
  return 0;
}

Numbers evaluate(const ScalarRow &row, const Operands &operands) {
  Numbers result;
  for (size_t e = 0; e < kElements; ++e)
    result[e] = row.function(operands[0][e], operands[1][e], operands[2][e]);
  return result;
}
// NaN is near nothing: what cannot run refutes.
bool near(const Numbers &a, const Numbers &b) {
  for (size_t e = 0; e < kElements; ++e)
    if (!(std::fabs(a[e] - b[e]) <= 1e-9 * (1 + std::fabs(a[e]))))
      return false;
  return true;
}

struct Values {
  std::vector<Numbers> held, meant; // per rank
};

bool holds(K kind, const Values &values) {
  auto same = [](const std::vector<Numbers> &all) {
    return std::all_of(all.begin(), all.end(), [&](const Numbers &x) { return near(x, all[0]); });
  };
  if (kind == K::P) {
    Numbers sum{};
    for (const Numbers &held : values.held)
      for (size_t e = 0; e < kElements; ++e)
        sum[e] += held[e];
    return same(values.meant) && near(sum, values.meant[0]);
  }
  for (size_t r = 0; r < values.held.size(); ++r)
    if (!near(values.held[r], values.meant[r]))
      return false;
  return kind == K::V || same(values.held);
}

Values compute(const ScalarRow &row, const std::vector<K> &kinds, size_t ranks,
               std::mt19937 &random) {
  std::vector<Operands> held(ranks), meant(ranks);
  for (size_t i = 0; i < kinds.size(); ++i) {
    Numbers sum{};
    for (size_t r = 0; r < ranks; ++r) {
      for (size_t e = 0; e < kElements; ++e) {
        held[r][i][e] = r && kinds[i] == K::R ? held[0][i][e] : draw(row.domain, random);
        sum[e] += held[r][i][e];
      }
      meant[r][i] = held[r][i];
    }
    for (size_t r = 0; kinds[i] == K::P && r < ranks; ++r)
      meant[r][i] = sum;
  }
  Values values;
  for (size_t r = 0; r < ranks; ++r) {
    values.held.push_back(evaluate(row, held[r]));
    values.meant.push_back(evaluate(row, meant[r]));
  }
  return values;
}

// The kind that the rule gives; none if it refuses.
std::optional<K> judge(const rules::OpDef &row, const std::vector<K> &kinds) {
  const rules::Equation &equation = row.equation.equation;
  ir::AxisSet axes(ir::AxisId{0});
  std::vector<OperandGroup> groups;
  for (K kind : kinds) {
    OperandKinds operand{.form = OperandKinds::Form::Tensor};
    (kind == K::R ? operand.strict_r : kind == K::V ? operand.v : operand.p) = axes;
    groups.push_back({operand});
  }
  rules::LocalResult result = rules::evaluate_local(
      {equation, groups, {}, axes, {}, row.zero_drops_term}, equation.sums[0]);
  if (result.bad)
    return std::nullopt;
  return result.v ? K::V : result.p ? K::P : K::R;
}

// The first assignment for which a refusal has no counterexample, if any; false claims fail.
bool is_strict(const ScalarRow &row, const rules::OpDef &rule) {
  bool strict = false;
  unsigned count = rule.equation.equation.operand_count;
  for (unsigned code = 0; code < std::pow(3, count); ++code) {
    std::vector<K> kinds;
    for (unsigned i = 0, rest = code; i < count; ++i, rest /= 3)
      kinds.push_back(static_cast<K>(rest % 3));
    std::optional<K> verdict = judge(rule, kinds);
    std::array<bool, 3> refuted{};
    std::mt19937 random(code + 1);
    for (unsigned d = 0; d < (verdict ? 4u : 100u); ++d) {
      Values values = compute(row, kinds, 2 + d % 2, random);
      if (verdict && !holds(*verdict, values)) {
        FAIL_CHECK(row.name << ", assignment " << code << ": the claim is false");
        break;
      }
      for (size_t k = 0; k < 3; ++k)
        refuted[k] = refuted[k] || !holds(static_cast<K>(k), values);
    }
    strict |= !verdict && refuted != std::array<bool, 3>{true, true, true};
  }
  return strict;
}

} // namespace

TEST_CASE("each pointwise row has a function, or is listed") {
  std::string without;
  for (const rules::OpDef &row : rules::pointwise_ops())
    if (std::none_of(std::begin(kRows), std::end(kRows),
                     [&](const ScalarRow &each) { return each.name == row.name; }))
      without += (without.empty() ? "" : " ") + std::string(row.name);
  CHECK(without == kWithoutFunction);
}

TEST_CASE("pointwise rows are right for their own functions, and strict only where listed") {
  for (const ScalarRow &row : kRows) {
    INFO(row.name);
    const rules::OpDef *rule = rules::find_op({row.name.data(), row.name.size()});
    REQUIRE(rule);
    bool listed = std::find(std::begin(kNeedlesslyStrict), std::end(kNeedlesslyStrict), row.name) !=
                  std::end(kNeedlesslyStrict);
    CHECK(is_strict(row, *rule) == listed);
  }
}

} // namespace spmd::property
