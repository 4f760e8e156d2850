// The gradient of every kernel of functions, reductions, normalisation and losses against central
// differences.
#include "tests/unit/catch.h"
#include "tests/unit/kernel_case.h"

#include "rules/derivative.h"
#include "rules/ops/families.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

namespace spmd::runtime {
namespace {

// What floats are drawn from: the normal distribution; between 0.1 and 0.9, 0.5 and 2.5, 1.1 and 3.
enum class Data : uint8_t { Normal, Unit, Positive, Above };

struct GradientCase {
  const char *inputs, *statement;
  Data data = Data::Normal;
  int64_t classes = 3; // integers are below it
};

double drawn(Data data, std::mt19937_64 &random) {
  double share = std::uniform_real_distribution<double>(0, 1)(random);
  switch (data) {
  case Data::Unit:
    return 0.1 + 0.8 * share;
  case Data::Positive:
    return 0.5 + 2 * share;
  case Data::Above:
    return 1.1 + 1.9 * share;
  default:
    return std::normal_distribution<double>(0, 1.5)(random);
  }
}

void fill(Tensor &tensor, Data data, int64_t classes, std::mt19937_64 &random) {
  ir::DTypeClass form = ir::info(tensor.dtype).form;
  for (double &cell : tensor.of<double>())
    cell = form == ir::DTypeClass::Float ? drawn(data, random)
           : form == ir::DTypeClass::Boolean
               ? static_cast<double>(random() % 2)
               : static_cast<double>(random() % static_cast<uint64_t>(classes));
}

// Rows of one operand and no attributes that matter, by what they are defined on.
constexpr const char *kOfAll[] = {
    "exp",   "exp2",       "expm1",      "sin",      "cos",         "sinh",       "cosh",
    "tanh",  "sigmoid",    "erf",        "erfc",     "atan",        "asinh",      "abs",
    "relu",  "gelu",       "silu",       "elu",      "selu",        "celu",       "leaky_relu",
    "mish",  "softplus",   "softsign",   "hardtanh", "hardsigmoid", "hardswish",  "hardshrink",
    "relu6", "softshrink", "frac",       "angle",    "logsigmoid",  "tanhshrink", "sgn",
    "ndtr",  "sinc",       "nan_to_num", "imag",     "tan",         "threshold"};
constexpr const char *kOfPositive[] = {"log",        "log2",   "log10",   "log1p", "sqrt", "rsqrt",
                                       "reciprocal", "lgamma", "digamma", "cbrt",  "entr"};
constexpr const char *kOfUnit[] = {"asin", "acos", "atanh", "erfinv", "logit"};
constexpr const char *kOfTwo[] = {"div",     "ldexp",     "logaddexp2", "atan2",   "hypot",
                                  "maximum", "logaddexp", "minimum",    "fmax",    "fmin",
                                  "swiglu",  "copysign",  "geglu",      "reglu",   "fmod",
                                  "add",     "sub",       "remainder",  "mse_loss"};
constexpr const char *kOfTwoPositive[] = {"pow", "xlogy", "xlog1py", "float_power"};
constexpr const char *kGated[] = {
    "gelu_backward",     "silu_backward",        "sigmoid_backward",    "tanh_backward",
    "elu_backward",      "leaky_relu_backward",  "hardtanh_backward",   "hardsigmoid_backward",
    "mish_backward",     "hardswish_backward",   "hardshrink_backward", "softshrink_backward",
    "softplus_backward", "log_sigmoid_backward", "threshold_backward"};
constexpr const char *kReductions[] = {
    "sum_squares", "nansum", "nanmean",   "amax",        "amin",        "prod",   "var",
    "std",         "norm",   "logsumexp", "softmax",     "softmin",     "cumsum", "diff",
    "cumprod",     "median", "normalize", "log_softmax", "logcumsumexp"};

constexpr GradientCase kCases[] = {
    {"f64[3, 4]; f64[4]", "%r = add %0, %1 { alpha = 2.5 }"},
    {"f64[3, 1]; f64[1, 4]", "%r = sub %0, %1 { alpha = -0.5 }"},
    {"f64[4]", "%r = aten.rsub.Scalar %0, 2.0 { alpha = 3.0 }"},
    {"f64[3, 4]; f64[4]; f64[3, 1]", "%r = addcmul %0, %1, %2 { value = 2.0 }"},
    {"f64[3, 4]; f64[4]; f64[3, 1]", "%r = addcdiv %0, %1, %2 { value = 2.0 }"},
    {"f64[3, 4]; bool[4]", "%r = masked_scale %0, %1 { scale = 1.25 }"},
    {"bool[3, 4]; f64[4]; f64[]", "%r = where %0, %1, %2"},
    {"f64[3, 4]; bool[3, 4]; f64[]", "%r = masked_fill %0, %1, %2"},
    {"i32[3, 4]; f64[3, 4]; f64[3, 4]; f64[3, 4]", "%r = select_n %0, %1, %2, %3"},
    {"f64[3, 4]; f64[4]; f64[3, 1]", "%r = clamp %0, %1, %2"},
    {"f64[3, 4]; f64[4]; f64[3, 1]", "%r = jax.lax.clamp %0, %1, %2"},
    {"f64[12]", "%r = clamp %0 { min = -0.5, max = 0.75 }"},
    {"f64[3, 4]; f64[4]", "%r = prelu %0, %1"},
    {"f64[3, 4]", "%r = glu %0"},
    {"f64[6, 2, 3]", "%r = glu %0 { dim = 0 }"},
    {"f64[3, 4]", "%r = fused_swiglu %0"},
    {"f64[12]", "%r = gelu %0 { approximate = \"tanh\" }"},
    {"f64[12]", "%r = elu %0 { alpha = 0.5, scale = 2.0, input_scale = 0.5 }"},
    {"f64[12]", "%r = softplus %0 { beta = 2.0, threshold = 1.0 }"},
    {"f64[12]", "%r = threshold %0 { threshold = 0.1, value = 20.0 }"},
    {"f64[12]", "%r = logit %0 { eps = 0.2 }", Data::Unit},
    {"f64[12]", "%r = acosh %0", Data::Above},
    {"f64[12]", "%r = mvlgamma %0 { p = 2 }", Data::Above},
    {"f64[12]", "%r = polygamma %0 { n = 2 }", Data::Positive},
    {"f64[12]; f64[12]", "%r = gelu_backward %0, %1 { approximate = \"tanh\" }"},
    {"f64[12]; f64[12]", "%r = logit_backward %0, %1 { eps = 0.2 }", Data::Unit},
    {"f64[12]; f64[12]", "%r = elu_backward %0, %1 { alpha = 0.5, is_result = true }"},
    {"f64[12]; f64[4, 12]; f64[4, 12]", "%r = div_backward_other %0, %1, %2", Data::Positive},
    {"f64[12]; f64[12]; f64[12]", "%r, %s = swiglu_backward %0, %1, %2"},
    {"f64[12]; f64[12]; f64[12]", "%r, %s = prelu_backward %0, %1, %2"},
    {"f64[3, 2]; f64[3, 4]", "%r = glu_backward %0, %1 { dim = 1 }"},
    {"f64[3, 4, 2]", "%r = powsum %0 { ord = 3.0, dim = [0, 2] }"},
    {"f64[3, 4]; f64[3, 4]; f64[3, 1]; f64[3, 1]", "%r, %s = weight_norm_backward %0, %1, %2, %3",
     Data::Positive},
    {"f64[3, 4, 2]", "%r = norm %0 { p = 3.0, dim = [0, 2] }"},
    {"f64[3, 4]", "%r = norm %0 { p = inf, dim = 1 }"},
    {"f64[3, 4]", "%r = norm %0 { p = 1, dim = 1, keepdim = true }"},
    {"f64[3, 4]", "%r = linalg_vector_norm %0 { ord = 0.5 }"},
    {"f64[2, 3, 4]", "%r = linalg_matrix_norm %0 { ord = -1, dim = [1, 2] }"},
    {"f64[2, 3, 4]", "%r = linalg_matrix_norm %0 { ord = inf, dim = [2, 0] }"},
    {"f64[4, 3]", "%r = linalg_norm %0 { ord = 1 }"},
    {"f64[4, 3]", "%r = linalg_norm %0 { ord = -inf }"},
    {"f64[3, 5]", "%r: f64[3] = quantile %0 { q = 0.3, dim = 1 }"},
    {"f64[3, 5]; f64[2]", "%r: f64[2, 5] = quantile %0, %1 { dim = 0 }", Data::Unit},
    {"f64[3, 5]", "%r, %s = max.dim %0 { dim = 1 }"},
    {"f64[3, 5]", "%r, %s = min.dim %0 { dim = 0, keepdim = true }"},
    {"f64[3, 5]", "%r, %s = cummax %0 { dim = 1 }"},
    {"f64[3, 5]", "%r, %s = cummin %0 { dim = 0 }"},
    {"f64[3, 5]", "%r, %s = aminmax %0 { dim = 1 }"},
    {"f64[3, 5]", "%r, %s = median %0 { dim = 1 }"},
    {"f64[3, 5]", "%r, %s = nanmedian %0 { dim = 0 }"},
    {"f64[3, 5]", "%r, %s = var_mean %0 { dim = 1, correction = 0 }"},
    {"f64[3, 5]", "%r, %s = std_mean %0 { dim = [0, 1] }"},
    {"f64[3, 5]", "%r = var %0 { dim = 1, unbiased = false }"},
    {"f64[3, 5]", "%r = cumsum %0 { dim = 0, reverse = true }"},
    {"f64[3, 5]", "%r = diff %0 { dim = 1, n = 2 }"},
    {"f64[3, 5]", "%r = trace %0"},
    {"f64[3, 4]; f64[3, 4]", "%r = softmax_backward %0, %1 { dim = 0 }"},
    {"f64[3, 4]; f64[3, 4]", "%r = log_softmax_backward %0, %1 { dim = 1 }"},
    {"f64[2, 3, 4]", "%r = softmax %0 { dim = 1 }"},
    {"f64[2, 3, 4]", "%r = softmax %0 { dim = [0, 2] }"},
    {"f64[2, 3, 4]", "%r = log_softmax %0 { dim = 0 }"},
    {"f64[2, 3, 4]", "%r = normalize %0 { dim = 1, p = 3.0 }"},
    {"f64[2, 3, 4]", "%r = gumbel_softmax %0 { dim = 1, tau = 0.5 }"},
    {"f64[2, 3, 4]; f64[3, 4]; f64[3, 4]", "%r = layer_norm %0, %1, %2"},
    {"f64[2, 3, 4]", "%r = layer_norm %0 { normalized_shape = [4], eps = 0.1 }"},
    {"f64[2, 3, 4]; f64[4]", "%r = rms_norm %0, %1 { eps = 0.01 }"},
    {"f64[2, 3, 4]", "%r = rms_norm %0 { normalized_shape = [3, 4] }"},
    {"f64[3, 4]; f64[4]; f64[4]", "%r, %m, %s = native_layer_norm %0, %1, %2 { eps = 0.01 }"},
    {"f64[3, 4]; f64[4]", "%r, %s = fused_rms_norm %0, %1 { eps = 0.01 }"},
    {"f64[3, 4]; f64[3, 4]; f64[3, 1]; f64[3, 1]; f64[4]; f64[4]",
     "%r, %s, %t = native_layer_norm_backward %0, %1, %2, %3, %4, %5"},
    {"f64[3, 4]; f64[3, 4]; f64[3, 1]; f64[4]", "%r, %s = fused_rms_norm_backward %0, %1, %2, %3"},
    {"f64[2, 4, 3]; f64[4]; f64[4]", "%r = group_norm %0, %1, %2 { num_groups = 2 }"},
    {"f64[2, 4, 3, 2]; f64[4]; f64[4]", "%r, %s, %t = native_group_norm %0, %1, %2 { group = 2 }"},
    {"f64[2, 4, 3]; f64[2, 4, 3]; f64[2, 2]; f64[2, 2]; f64[4]",
     "%r, %s, %t = group_norm_backward %0, %1, %2, %3, %4 { group = 2 }"},
    {"f64[2, 4, 3]; f64[4]; f64[4]", "%r = batch_norm %0, %1, %2 { training = true }"},
    {"f64[5, 4]; f64[4]; f64[4]", "%r = batch_norm %0, %1, %2 { training = true, eps = 0.1 }"},
    {"f64[5, 4]; f64[5, 4]; f64[4]", "%r, %s, %t = batch_norm_backward %0, %1, %2"},
    {"f64[2, 4, 3]; f64[4]; f64[4]", "%r = instance_norm %0, %1, %2"},
    {"f64[2, 4, 3]; f64[4]; f64[4]; f64[4]; f64[4]", "%r = batch_norm_inference %0, %1, %2, %3, %4",
     Data::Positive},
    {"f64[2, 4]; f64[2, 4]", "%r = cosine_similarity %0, %1 { dim = 1 }"},
    {"f64[2, 4, 3]; f64[2, 1, 1]", "%r = weight_norm %0, %1"},
    {"f64[2, 4, 3]; f64[1, 4, 1]", "%r = weight_norm %0, %1 { dim = 1 }"},
    {"f64[3, 4]; f64[3, 4]", "%r = l1_loss %0, %1 { reduction = \"sum\" }"},
    {"f64[3, 4]; f64[3, 4]", "%r = mse_loss %0, %1 { reduction = \"mean\" }"},
    {"f64[3, 4]; f64[3, 4]", "%r = smooth_l1_loss %0, %1 { reduction = \"mean\", beta = 0.5 }"},
    {"f64[3, 4]; f64[3, 4]", "%r = huber_loss %0, %1 { reduction = \"sum\", delta = 0.5 }"},
    {"f64[3, 4]; f64[3, 4]", "%r = soft_margin_loss %0, %1 { reduction = \"mean\" }"},
    {"f64[3, 4]; f64[3, 4]", "%r = kl_div %0, %1 { reduction = \"batchmean\" }", Data::Unit},
    {"f64[3, 4]; f64[3, 4]", "%r = kl_div %0, %1 { reduction = \"sum\", log_target = true }"},
    {"f64[3, 4]; f64[3, 4]", "%r = poisson_nll_loss %0, %1 { reduction = \"mean\", full = true }",
     Data::Above},
    {"f64[3, 4]; f64[3, 4]", "%r = poisson_nll_loss %0, %1 { log_input = false }", Data::Above},
    {"f64[3, 4]; f64[3, 4]; f64[4]", "%r = binary_cross_entropy %0, %1, %2", Data::Unit},
    {"f64[3, 4]; f64[3, 4]; f64[4]; f64[4]",
     "%r = binary_cross_entropy_with_logits %0, %1, %2, %3 { reduction = \"mean\" }"},
    {"f64[]; f64[3, 4]; f64[3, 4]", "%r = mse_loss_backward %0, %1, %2 { reduction = 1 }"},
    {"f64[3, 4]; f64[3, 4]; f64[3, 4]",
     "%r = smooth_l1_loss_backward %0, %1, %2 { reduction = 0, beta = 0.5 }"},
    {"f64[]; f64[3, 4]; f64[3, 4]",
     "%r = huber_loss_backward %0, %1, %2 { reduction = 2, delta = 0.5 }"},
    {"f64[]; f64[3, 4]; f64[3, 4]", "%r = soft_margin_loss_backward %0, %1, %2 { reduction = 1 }"},
    {"f64[]; f64[3, 4]; f64[3, 4]; f64[3, 4]",
     "%r = binary_cross_entropy_backward %0, %1, %2, %3 { reduction = 1 }", Data::Unit},
    {"f64[6, 3]; i64[6]", "%r = cross_entropy %0, %1 { reduction = \"mean\" }"},
    {"f64[6, 3]; i64[6]", "%r = cross_entropy %0, %1 { label_smoothing = 0.1 }"},
    {"f64[6, 3]; i64[6]; f64[3]",
     "%r = cross_entropy %0, %1, %2 { reduction = \"mean\", ignore_index = 1, label_smoothing = "
     "0.1 }",
     Data::Positive},
    {"f64[6, 3]; f64[6, 3]; f64[3]",
     "%r = cross_entropy %0, %1, %2 { reduction = \"mean\", label_smoothing = 0.1 }", Data::Unit},
    {"f64[6, 4]; f64[3, 4]; i64[6]",
     "%r = linear_cross_entropy %0, %1, %2 { reduction = \"mean\" }"},
    {"f64[6, 3]; i64[6]", "%r, %s = nll_loss %0, %1 { reduction = \"sum\" }"},
    {"f64[6, 3]; i64[6]; f64[3]", "%r, %s = nll_loss %0, %1, %2 { reduction = \"mean\" }",
     Data::Positive},
    {"f64[]; f64[6, 3]; i64[6]; f64[3]; f64[]",
     "%r = aten.nll_loss_backward %0, %1, %2, %3, %4 { reduction = 1 }", Data::Positive},
    {"f64[]; f64[6, 3]; i64[6]; f64[3]", "%r = nll_loss_backward_mean %0, %2, %3, null, %1",
     Data::Positive},
    {"f64[6]; f64[6, 3]; i64[6]; f64[3]; f64[]",
     "%r = aten.nll_loss_backward %0, %1, %2, %3, %4 { reduction = 0 }", Data::Positive},
    {"f64[]; f64[6, 3]; i64[6]", "%r = cross_entropy_backward %0, %1, %2 { reduction = 1 }"},
    {"f64[6, 3]; i64[6]; f64[3]", "%r = cross_entropy %0, %1, %2 { reduction = \"sum\" }",
     Data::Positive},
    {"f64[6, 3]; i64[6]; f64[3]", "%r, %s = nll_loss %0, %1, %2 { reduction = \"sum\" }",
     Data::Positive},
    {"f64[3, 4]; f64[3, 1]", "%r = masked_scale %0, %1 { scale = 1.25 }"},
    {"f64[1, 2, 4, 5]; f64[1, 2, 3, 2]", "%r: f64[1, 2, 2, 3] R = grid_sample %0, %1", Data::Unit},
    {"f64[2, 3, 5, 4]; f64[2, 3, 6, 4]; f64[2, 3, 6, 7]; f64[5, 6]",
     "%r = attention %0, %1, %2, %3"},
    {"f64[2, 3, 5, 4]; f64[2, 3, 6, 4]; f64[2, 3, 6, 7]; f64[3, 1, 6]; f64[2, 1, 5, 6]",
     "%r = attention %0, %1, %2, %3, %4"},
    {"f64[2, 3, 5, 4]; f64[2, 3, 5, 4]; f64[2, 3, 5, 7]; f64[2, 1, 5, 5]; f64[5]",
     "%r = attention %0, %1, %2, %3, %4 { is_causal = true }"},
    {"f64[2, 6, 5, 4]; f64[2, 2, 6, 4]; f64[2, 2, 6, 7]; f64[6, 5, 6]; f64[2, 1, 1, 6]",
     "%r = attention %0, %1, %2, %3, %4 { enable_gqa = true }"},
    {"f64[1, 6, 5, 4]; f64[1, 2, 5, 4]; f64[1, 2, 5, 7]; f64[1, 5, 5]; f64[6, 1, 1]",
     "%r = attention_grouped_causal %0, %1, %2, %3, %4"},
    {"f64[2, 3, 5, 4]; f64[2, 3, 6, 4]; f64[2, 3, 6, 7]; f64[2, 3, 5, 6]; f64[1, 3, 1, 6]",
     "%r, %l = attention_fused %0, %1, %2, %3, %4"},
    {"f64[2, 3, 5, 4]; f64[2, 3, 5, 4]; f64[2, 3, 5, 7]; f64[1, 1, 5, 5]; f64[2, 1, 5, 1]",
     "%r, %l = attention_fused %0, %1, %2, %3, %4 { is_causal = true }"},
    {"f64[2, 4, 3, 4]; f64[2, 2, 5, 4]; f64[2, 2, 5, 3]; f64[4, 3, 5]; f64[4, 3, 5]",
     "%r, %l = attention_fused_grouped %0, %1, %2, %3, %4"},
    {"f64[2, 4, 3, 4]; f64[2, 2, 3, 4]; f64[2, 2, 3, 3]; f64[4, 3, 3]; f64[4, 3, 3]",
     "%r, %l = attention_fused_grouped_causal %0, %1, %2, %3, %4"},
    {"f64[2, 5, 3, 4]; f64[5, 4]; f64[5, 4]", "%r = rope %0, %1, %2"},
};

// Operands by which there is no derivative that we know.
bool is_unknown_derivative(const std::string &problem) {
  return problem.find("has no derivative by operand") != std::string::npos;
}

using Operands = std::set<std::string>; // ROW.OPERAND

void check(const GradientCase &test, Operands &seen) {
  INFO(test.inputs << "  " << test.statement);
  KernelCase made(test.inputs, test.statement);
  REQUIRE(made.problem == "");
  REQUIRE(made.kernel());
  std::mt19937_64 random(7);
  for (Tensor &arg : made.args)
    fill(arg, test.data, test.classes, random);
  std::set<std::string> verified;
  std::string problem = gradient_problem(made, random, &verified);
  // Which of its operands has one is asked for one by one.
  while (is_unknown_derivative(problem))
    problem = problem.substr(problem.find("; ") + 2);
  CHECK(problem == "");
  for (const std::string &operand : verified)
    seen.insert(std::string(made.row().name) + "." + operand);
}

void check_all(Operands &seen, llvm::ArrayRef<const char *> rows, const char *inputs,
               const char *operands, Data data) {
  for (const char *row : rows) {
    std::string statement = std::string("%r = ") + row + " " + operands;
    check({inputs, statement.c_str(), data}, seen);
  }
}

// Operands that a kernel has a derivative by, but no case compares: it is an error at run time, or
// the gradient is that of the equation.
constexpr const char *kNotCompared[] = {"attention_varlen.k", "attention_varlen.q",
                                        "attention_varlen.v", "cast.a"};

// Of the rows of these families whose kernel has a derivative, the operands with a gradient that no
// case is about.
std::set<std::string> not_seen(const Operands &seen) {
  std::set<std::string> missing;
  for (llvm::ArrayRef<rules::OpDef> family :
       {rules::pointwise_ops(), rules::reduction_ops(), rules::normalisation_ops(),
        rules::loss_ops(), rules::attention_ops()})
    for (const rules::OpDef &row : family) {
      const KernelDef *kernel = find_kernel(row.name);
      if (!kernel || !row.gradient || (!kernel->vjp && !kernel->taped))
        continue;
      const rules::Equation &equation = row.equation.equation;
      for (unsigned i = 0; i < equation.operand_count; ++i)
        if (std::string name = fmt::format("{}.{}", row.name, equation.operands[i].name);
            rules::derivative(row, i) && !seen.count(name))
          missing.insert(name);
    }
  return missing;
}

TEST_CASE("gradients of kernels are limits of differences") {
  Operands seen;
  check_all(seen, kOfAll, "f64[12]", "%0", Data::Normal);
  check_all(seen, kOfPositive, "f64[12]", "%0", Data::Positive);
  check_all(seen, kOfUnit, "f64[12]", "%0", Data::Unit);
  check_all(seen, kOfTwo, "f64[3, 4]; f64[4]", "%0, %1", Data::Normal);
  check_all(seen, kOfTwo, "f64[3, 1]; f64[4]", "%0, %1", Data::Normal);
  check_all(seen, kOfTwoPositive, "f64[3, 4]; f64[4]", "%0, %1", Data::Positive);
  check_all(seen, kGated, "f64[3, 4]; f64[3, 4]", "%0, %1", Data::Normal);
  check_all(seen, kReductions, "f64[3, 5]", "%0 { dim = 1 }", Data::Normal);
  for (const GradientCase &test : kCases)
    check(test, seen);
  CHECK(not_seen(seen) == std::set<std::string>(std::begin(kNotCompared), std::end(kNotCompared)));
}

} // namespace
} // namespace spmd::runtime
