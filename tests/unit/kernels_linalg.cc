// Linear algebra by what defines each op: products of factors are the matrix again, solutions
// solve, gradients are difference quotients.
#include "tests/unit/catch.h"
#include "tests/unit/kernel_case.h"

#include "runtime/kernels/matrix.h"

#include <fmt/format.h>

#include <cmath>

namespace spmd::runtime {
namespace {

using Real = Matrix<double>;

void draw(Tensor &tensor, std::mt19937_64 &random) {
  for (double &cell : tensor.of<double>())
    cell = std::normal_distribution<double>()(random);
}
Real matrix_of(const Tensor &tensor, int64_t i = 0) {
  return Real({&tensor.dims, tensor.of<double>().data(), tensor.dtype},
              i * tensor.dims.back() * tensor.dims[tensor.dims.size() - 2]);
}
double largest(const Real &m) {
  double most = 0;
  for (double cell : m.cells)
    most = std::isnan(cell) ? cell : std::max(most, std::abs(cell));
  return most;
}
double apart(const Real &a, const Real &b) {
  return a.rows == b.rows && a.columns == b.columns ? largest(a + -1.0 * b) : INFINITY;
}
Real unit(int64_t n) { return Real::identity(n); }

std::unique_ptr<KernelCase> drawn(const char *inputs, const char *statement, uint64_t seed = 1,
                                  bool positive = false) {
  INFO(statement << " of " << inputs);
  auto test = std::make_unique<KernelCase>(inputs, statement);
  REQUIRE(test->problem == "");
  std::mt19937_64 random(seed);
  for (Tensor &arg : test->args)
    draw(arg, random);
  if (positive) { // a a^T + n
    Real a = matrix_of(test->args[0]);
    Real made = a * a.adjoint() + static_cast<double>(a.rows) * unit(a.rows);
    test->args[0].of<double>() = made.cells;
  }
  REQUIRE(test->run() == "");
  return test;
}
void check_gradient(KernelCase &test) {
  std::mt19937_64 random(9);
  CHECK(gradient_problem(test, random) == "");
}

} // namespace

TEST_CASE("inverses and solutions") {
  auto inverse = drawn("f64[2, 4, 4]", "%y = linalg_inv %0");
  for (int64_t i : {0, 1})
    CHECK(apart(matrix_of(inverse->args[0], i) * matrix_of(inverse->results[0], i), unit(4)) <
          1e-12);
  check_gradient(*inverse);
  auto solve = drawn("f64[4, 4]; f64[4, 3]", "%y = solve %0, %1");
  CHECK(apart(matrix_of(solve->args[0]) * matrix_of(solve->results[0]), matrix_of(solve->args[1])) <
        1e-12);
  check_gradient(*solve);
  auto upper = drawn("f64[4, 4]; f64[4, 3]", "%y, %c = triangular_solve %0, %1 { upper = true }");
  Real triangle = upper_part(matrix_of(upper->args[0]), 4);
  CHECK(apart(triangle * matrix_of(upper->results[0]), matrix_of(upper->args[1])) < 1e-10);
  auto cholesky = drawn("f64[4, 4]", "%y = cholesky %0", 2, true);
  Real l = matrix_of(cholesky->results[0]);
  CHECK(apart(l * l.adjoint(), matrix_of(cholesky->args[0])) < 1e-12);
  check_gradient(*cholesky);
  auto by_factor = drawn("f64[4, 4]; f64[4, 2]", "%y = cholesky_solve %0, %1", 3, true);
  Real factor = upper_part(matrix_of(by_factor->args[0]).adjoint(), 4).adjoint();
  CHECK(apart(factor * (factor.adjoint() * matrix_of(by_factor->results[0])),
              matrix_of(by_factor->args[1])) < 1e-11);
}

TEST_CASE("factors multiply to the matrix") {
  for (auto [m, n] : {std::pair(5, 3), {3, 5}, {4, 4}}) {
    int k = std::min(m, n);
    std::string shape = fmt::format("f64[{}, {}]", m, n);
    std::string qr = fmt::format("%q: f64[{}, {}] R, %r: f64[{}, {}] R = linalg_qr %0", m, k, k, n);
    auto made = drawn(shape.c_str(), qr.c_str());
    Real q = matrix_of(made->results[0]), r = matrix_of(made->results[1]);
    CHECK(apart(q * r, matrix_of(made->args[0])) < 1e-12);
    CHECK(apart(q.adjoint() * q, unit(k)) < 1e-12);
    check_gradient(*made);
  }
}

} // namespace spmd::runtime
