// Linear algebra by what defines each op: products of factors are the matrix again, solutions solve,
// gradients are difference quotients.
#include "tests/unit/catch.h"
#include "tests/unit/kernel_case.h"

#include "runtime/kernels/spectral.h"

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
Real diagonal(const std::vector<double> &values) {
  Real made(static_cast<int64_t>(values.size()), static_cast<int64_t>(values.size()));
  for (int64_t i = 0; i < made.rows; ++i)
    made(i, i) = values[static_cast<size_t>(i)];
  return made;
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
  auto power = drawn("f64[3, 3]", "%y = matrix_power %0 { n = -3 }");
  Real a = matrix_of(power->args[0]);
  CHECK(apart(a * a * a * matrix_of(power->results[0]), unit(3)) < 1e-10);
  check_gradient(*power);
  auto wide = drawn("f64[3, 5]", "%y: f64[5, 3] R = pinv %0");
  CHECK(apart(matrix_of(wide->args[0]) * matrix_of(wide->results[0]), unit(3)) < 1e-12);
  check_gradient(*wide);
}

TEST_CASE("functions of matrices") {
  auto both = drawn("f64[3, 3]", "%y = matrix_exp %0");
  Real a = matrix_of(both->args[0]);
  both->args[0].of<double>() = (-1.0 * a).cells;
  Real forth = matrix_of(both->results[0]);
  REQUIRE(both->run() == "");
  CHECK(apart(forth * matrix_of(both->results[0]), unit(3)) < 1e-12);
  check_gradient(*both);
  auto det = drawn("f64[2, 3, 3]", "%y = det %0");
  Real m = matrix_of(det->args[0], 1);
  double want = m(0, 0) * (m(1, 1) * m(2, 2) - m(1, 2) * m(2, 1)) -
                m(0, 1) * (m(1, 0) * m(2, 2) - m(1, 2) * m(2, 0)) +
                m(0, 2) * (m(1, 0) * m(2, 1) - m(1, 1) * m(2, 0));
  CHECK(std::abs(det->results[0].of<double>()[1] - want) < 1e-12);
  check_gradient(*det);
  auto log = drawn("f64[2, 3, 3]", "%s, %y = slogdet %0");
  CHECK(std::abs(log->results[0].of<double>()[1] * std::exp(log->results[1].of<double>()[1]) -
                 want) < 1e-12);
  check_gradient(*log);
}

TEST_CASE("factors multiply to the matrix") {
  for (const char *shape : {"f64[5, 3]", "f64[3, 5]", "f64[4, 4]"}) {
    KernelCase plain(shape, "%y = neg %0");
    int64_t m = plain.args[0].dims[0], n = plain.args[0].dims[1], k = std::min(m, n);
    auto text = [&](const char *op, std::initializer_list<std::pair<int64_t, int64_t>> results) {
      std::string names, types;
      int at = 0;
      for (auto [rows, columns] : results) {
        names += (at ? ", %" : "%") + std::string(1, static_cast<char>('p' + at)) + ": f64[" +
                 std::to_string(rows) + (columns ? ", " + std::to_string(columns) : "") + "] R";
        ++at;
      }
      return names + " = " + op;
    };
    std::string qr = text("linalg_qr %0", {{m, k}, {k, n}});
    auto made = drawn(shape, qr.c_str());
    Real q = matrix_of(made->results[0]), r = matrix_of(made->results[1]);
    CHECK(apart(q * r, matrix_of(made->args[0])) < 1e-12);
    CHECK(apart(q.adjoint() * q, unit(k)) < 1e-12);
    std::string full = text("linalg_svd %0", {{m, m}, {k, 0}, {n, n}});
    auto svd = drawn(shape, full.c_str());
    Real u = matrix_of(svd->results[0]), v = matrix_of(svd->results[2]);
    CHECK(apart(u.adjoint() * u, unit(m)) < 1e-12);
    CHECK(apart(v.adjoint() * v, unit(n)) < 1e-12);
    Real s = diagonal(svd->results[1].of<double>());
    CHECK(apart(u.left(k) * s * v.adjoint().left(k).adjoint(), matrix_of(svd->args[0])) < 1e-12);
    std::string lu = text("linalg_lu %0", {{m, m}, {m, k}, {k, n}});
    auto three = drawn(shape, lu.c_str());
    CHECK(apart(matrix_of(three->results[0]) * matrix_of(three->results[1]) *
                    matrix_of(three->results[2]),
                matrix_of(three->args[0])) < 1e-12);
    std::string values = text("linalg_svdvals %0", {{k, 0}});
    auto alone = drawn(shape, values.c_str());
    check_gradient(*alone);
  }
  auto eigh = drawn("f64[4, 4]", "%w: f64[4] R, %v: f64[4, 4] R = linalg_eigh %0", 4, true);
  Real v = matrix_of(eigh->results[1]);
  CHECK(apart(matrix_of(eigh->args[0]) * v, v * diagonal(eigh->results[0].of<double>())) < 1e-11);
  CHECK(apart(v.adjoint() * v, unit(4)) < 1e-12);
  auto values = drawn("f64[4, 4]", "%w: f64[4] R = linalg_eigvalsh %0", 4, true);
  check_gradient(*values);
}

TEST_CASE("eigenvalues of any matrix") {
  std::mt19937_64 random(7);
  for (int64_t n : {1, 2, 3, 6, 10}) {
    Matrix<Complex> a(n, n);
    for (Complex &cell : a.cells)
      cell = {std::normal_distribution<double>()(random),
              n % 2 ? 0 : std::normal_distribution<double>()(random)};
    std::optional<Eigen<Complex>> found = eigen_of(a);
    REQUIRE(found);
    Matrix<Complex> left = a * found->vectors;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        CHECK(std::abs(left(i, j) - found->vectors(i, j) * found->values[static_cast<size_t>(j)]) <
              1e-9);
  }
}

} // namespace spmd::runtime
