// Results of kernels that are known beforehand: special functions, conventions at ties and borders,
// bits, and which rows are without a kernel. What torch has an op for is held against torch
// (exporters/tests/torch/test_kernels.py).
#include "tests/unit/catch.h"
#include "tests/unit/kernel_case.h"

#include "rules/ops/families.h"
#include "runtime/equation/equation.h"
#include "runtime/kernels/integral.h"
#include "runtime/kernels/vjp.h"
#include "runtime/tensor/number.h"

#include <set>

namespace spmd::runtime {
namespace {

void check_near(double found, double expected) {
  INFO(found << " and not " << expected);
  CHECK(std::abs(found - expected) <= 2e-14 * std::abs(expected));
}

TEST_CASE("special functions at known points") {
  constexpr double kEuler = 0.57721566490153286061;
  check_near(digamma(1), -kEuler);
  check_near(digamma(0.5), -kEuler - 2 * M_LN2);
  check_near(digamma(-0.5), 0.03648997397857652);
  check_near(polygamma(1, 1), kPi * kPi / 6);
  check_near(polygamma(2, 0.5), -14 * 1.2020569031595942854);
  check_near(zeta(2, 1), kPi * kPi / 6);
  check_near(zeta(3, 1), 1.2020569031595942854);
  check_near(zeta(4, 1), kPi * kPi * kPi * kPi / 90);
  for (double x : {-2.5, -0.3, 1e-8, 0.2, 0.7, 1.9})
    check_near(erfinv(std::erf(x)) / x, 1);
  CHECK(std::isnan(digamma(-2)));
  CHECK(zeta(1, 1) == kInfinity);
  CHECK(erfinv(1) == kInfinity);
}

TEST_CASE("exact conversion of doubles to residues") {
  CHECK(residue_of(3) == Residue(3));
  CHECK(residue_of(-2.5) * Residue(2) == Residue(-5));
  CHECK(residue_of(0.1) * residue_of(std::ldexp(1.0, 80)) == residue_of(std::ldexp(0.1, 80)));
}

TEST_CASE("second derivatives by duals of duals") {
  Dual<Dual<double>> x(Dual<double>(0.7, 1.0), Dual<double>(1.0));
  check_near(exp(x).slope().slope(), std::exp(0.7));
  check_near(sin(x).slope().slope(), -std::sin(0.7));
  check_near(lgamma(x).slope().slope(), polygamma(1, 0.7));
}

struct ValueCase {
  const char *inputs;
  std::vector<std::vector<double>> data;
  const char *statement;
  std::vector<std::vector<double>> expected; // one per result
};

const ValueCase kValues[] = {
    {"i32[4]", {{-7, 7, 0, 1}}, "%r: i32[4] = not %0", {{6, -8, -1, -2}}},
    {"i32[4]", {{-1, 7, 0, 8}}, "%r = population_count %0", {{32, 3, 0, 1}}},
    {"i32[4]", {{-1, 7, 0, 1}}, "%r = clz %0", {{0, 29, 32, 31}}},
    {"u8[2]", {{200, 0}}, "%r = bitwise_not %0", {{-201, -1}}}, // rounded to u8 after the op
    {"i8[3]; i8[3]", {{-8, 8, 1}, {1, 1, 9}}, "%r = shift_right_arithmetic %0, %1", {{-4, 4, 0}}},
    {"i8[3]; i8[3]", {{-8, 8, 1}, {1, 1, 9}}, "%r = shift_right_logical %0, %1", {{124, 4, 0}}},
    {"i32[1]; i32[1]", {{1 << 30}, {1 << 20}}, "%r = mulhi %0, %1", {{262144}}},
    {"f32[3]",
     {{1, -2, 0.15625}},
     "%r = bitcast %0 { dtype = i32 }",
     {{0x3F800000, -0x40000000, 0x3E200000}}},
    {"f16[3]", {{1, -2, 0x1p-24}}, "%r = bitcast %0 { dtype = i16 }", {{0x3C00, -0x4000, 1}}},
    {"i8[3]", {{0x38, -0x48, 1}}, "%r = bitcast %0 { dtype = f8e4m3 }", {{1, -1, 0x1p-9}}},
    {"f32[3]",
     {{1.3, -2.75, 70000}},
     "%r: f32[3] = reduce_precision %0 { exponent_bits = 5, mantissa_bits = 2 }",
     {{1.25, -3, kInfinity}}},
    {"f64[3]", {{2.5, -0.5, 3.5}}, "%r = round %0", {{2, -0.0, 4}}},
    {"f64[3]", {{2.5, -0.5, 3.5}}, "%r = round %0 { rounding_method = 0 }", {{3, -1, 4}}},
    {"f64[4]; f64[4]", {{0, -0.0, 1, 2}, {-0.0, 0, 1, 3}}, "%r = lt_to %0, %1", {{0, 1, 0, 1}}},
    {"f64[2]; f64[2]", {{0, 1}, {-0.0, 1}}, "%r = eq_to %0, %1", {{0, 1}}},
    {"f64[2, 3]", {{1, 5, 5, 7, 7, 2}}, "%r, %s = max.dim %0 { dim = 1 }", {{5, 7}, {1, 0}}},
    {"f64[2, 3]", {{3, 1, 1, 7, 2, 2}}, "%r = argmin %0 { dim = 1 }", {{1, 1}}},
    {"f64[2, 3]", {{3, 1, 9, 9, 2, 2}}, "%r = argmax %0", {{2}}},
    {"f64[4]", {{4, 1, 3, 2}}, "%r, %s = median %0 { dim = 0 }", {{2}, {3}}},
    {"f64[4]", {{1.9, 1.9, -1.9, 0.5}}, "%r = sum %0 { dtype = i32 }", {{1}}},
    {"bool[3]", {{1, 1, 1}}, "%r = reduce_xor %0", {{1}}},
    {"f64[3]", {{1, 2, 3}}, "%r = cumsum %0 { reverse = true }", {{6, 5, 3}}},
    {"i32[3]; f64[3]; f64[3]; f64[3]",
     {{2, 0, 1}, {1, 1, 1}, {2, 2, 2}, {3, 3, 3}},
     "%r = select_n %0, %1, %2, %3",
     {{3, 1, 2}}},
    {"f64[4]",
     {{1, 2, 3, 4}},
     "%r = fused_swiglu %0",
     {{3 / (1 + std::exp(-1.0)), 8 / (1 + std::exp(-2.0))}}},
    {"f64[]", {{0}}, "%r = is_nonzero %0", {{0}}},
};

TEST_CASE("kernels give the values that are known") {
  for (const ValueCase &test : kValues) {
    INFO(test.statement);
    KernelCase made(test.inputs, test.statement);
    CHECK(made.problem == "");
    if (!made.problem.empty())
      continue;
    REQUIRE(made.kernel());
    for (size_t i = 0; i < test.data.size(); ++i)
      made.args[i].of<double>() = test.data[i];
    CHECK(made.run() == "");
    for (size_t r = 0; r < test.expected.size(); ++r)
      CHECK(made.results[r].of<double>() == test.expected[r]);
  }
}

struct TieCase {
  const char *inputs;
  std::vector<std::vector<double>> data;
  const char *statement;
  std::vector<std::vector<double>> gradients; // by each argument, where 1 flows into each result
};

const TieCase kTies[] = {
    {"f64[2]; f64[2]", {{1, 1}, {1, 2}}, "%r = maximum %0, %1", {{1, 0}, {0, 1}}},
    {"f64[2]; f64[2]", {{1, 1}, {1, 0}}, "%r = minimum %0, %1", {{1, 0}, {0, 1}}},
    {"f64[3]", {{2, 5, 5}}, "%r = amax %0", {{0, 1, 0}}},
    {"f64[3]", {{0, -1, 1}}, "%r = relu %0", {{0, 0, 1}}},
    {"f64[3]", {{0, -1, 1}}, "%r = abs %0", {{0, -1, 1}}},
    {"f64[3]", {{-1, 0, 1}}, "%r = hardtanh %0", {{0, 1, 0}}},
    {"f64[3]", {{-1, 0, 1}}, "%r = clamp %0 { min = -1, max = 1 }", {{1, 1, 1}}},
    {"f64[3]", {{0, 0, 0}}, "%r = norm %0", {{0, 0, 0}}},
    {"f64[3]", {{2, 0, 3}}, "%r = prod %0", {{0, 6, 0}}},
    {"f64[2]; f64[2]", {{0, 0}, {0, 2}}, "%r = xlogy %0, %1", {{0, std::log(2.0)}, {0, 0}}},
};

TEST_CASE("gradients at ties and borders") {
  for (const TieCase &test : kTies) {
    INFO(test.statement);
    KernelCase made(test.inputs, test.statement);
    REQUIRE(made.problem == "");
    for (size_t i = 0; i < test.data.size(); ++i)
      made.args[i].of<double>() = test.data[i];
    std::vector<double> ones(made.results[0].of<double>().size(), 1);
    for (unsigned arg = 0; arg < test.gradients.size(); ++arg) {
      llvm::Expected<std::vector<double>> gradient =
          made.vjp(made.place_of(arg)->operand, 0, {ones});
      if (!gradient)
        FAIL_CHECK(llvm::toString(gradient.takeError()));
      else
        CHECK(*gradient == test.gradients[arg]);
    }
  }
}

TEST_CASE("what cannot be carried out says why") {
  const std::pair<const char *, const char *> refused[] = {
      {"%r = gelu %0 { approximate = \"fast\" }", "attribute `approximate` is `fast`"},
      {"%r = dequantize %0 { dtype = f32 }", "scale and zero point"},
      {"%r = ndtri %0", "it has no kernel"},
      {"%r: f64[] = nuclear_norm %0", "singular values"},
      {"%r = linalg_norm %0 { ord = 3 }", "no norm of that order"},
  };
  for (auto [statement, why] : refused) {
    INFO(statement);
    KernelCase made("f64[3, 3]", statement);
    REQUIRE(made.problem == "");
    CHECK(made.run().find(why) != std::string::npos);
  }
}

TEST_CASE("bits of emulated floats go both ways") {
  for (ir::DType dtype : {ir::DType::F8E4M3, ir::DType::F8E5M2, ir::DType::F16, ir::DType::BF16}) {
    uint64_t patterns = uint64_t(1) << (ir::info(dtype).bytes * 8);
    for (uint64_t bits = 0; bits < patterns; ++bits)
      if (double value = decode(bits, dtype); !std::isnan(value) && encode(value, dtype) != bits)
        FAIL_CHECK(bits << " is " << value);
  }
}

// Rows with neither a kernel nor an equation that is the value: types are inferred, numbers are not
// computed. `function` is any function; the others are not in the steps of networks.
const std::set<std::string_view> kWithoutNumbers = {
    "function",
    "recurrent_layer",
    "recurrent_layer_backward",
    "recurrent_layer_backward_of_all",
    "recurrent_layer_backward_of_output",
    "recurrent_layer_backward_of_state",
    "ctc_losses",
    "ctc_losses_backward",
    "multi_margin_loss_backward",
    "multilabel_margin_loss",
    "multilabel_margin_loss_backward",
    "batch_norm_stats",
    "batch_norm_joined_stats",
    "batch_norm_by_stats",
    "batch_norm_backward_sums",
    "batch_norm_backward_by_sums",
    "affine_grid",
    "affine_grid_backward",
    "embedding_renorm",
    "renorm",
    "pack_sequences",
    "gamma_gradient",
    "pdist_backward",
    "segment_reduce_backward",
    "alpha_dropout",
    "binomial",
    "fractional_max_pool",
    "histc",
    "igamma",
    "igammac",
    "kthvalue",
    "local_response_norm",
    "mode",
    "pdist",
    "rrelu",
    "rrelu_with_noise_backward",
    "segment_reduce",
    "trapezoid",
    "cumulative_trapezoid",
    "bessel_j0",
    "bessel_j1",
    "betainc",
    "erfcx",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "log_ndtr",
    "zeta",
    "fft_fft",
    "fft_fftn",
    "fft_ifft",
    "fft_irfft",
    "fft_rfft",
    "margin_losses",
    "det",
    "eig",
    "eigh",
    "logdet",
    "lstsq",
    "lu",
    "lu_solve",
    "matrix_exp",
    "matrix_power",
    "ormqr",
    "pinv",
    "pivots_to_permutation",
    "slogdet",
    "svd",
    "tridiagonal_solve",
};

TEST_CASE("every row has a kernel, or is its equation, or is listed as having no numbers") {
  std::set<std::string_view> without;
  for (llvm::ArrayRef<rules::OpDef> family : rules::op_families())
    for (const rules::OpDef &row : family) {
      const KernelDef *kernel = find_kernel(row.name);
      if (!is_value(row) && !(kernel && (kernel->real || kernel->complex)))
        without.insert(row.name);
    }
  CHECK(without == kWithoutNumbers);
}

TEST_CASE("where a kernel is the value, its gradient is the kernel's too") {
  for (llvm::ArrayRef<rules::OpDef> family : {rules::pointwise_ops(), rules::reduction_ops(),
                                              rules::normalisation_ops(), rules::loss_ops()})
    for (const rules::OpDef &row : family) {
      const KernelDef *kernel = find_kernel(row.name);
      INFO(row.name);
      if (kernel && kernel->real && row.gradient && !is_value(row))
        CHECK((kernel->vjp || kernel->taped || kernel->moves || row.name == "bitwise_left_shift"));
    }
}

} // namespace
} // namespace spmd::runtime
