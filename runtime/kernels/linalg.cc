// Inverses, determinants, functions of matrices, systems of equations.
#include "runtime/kernels/matrix.h"
#include "runtime/kernels/rows.h"

namespace spmd::runtime {

namespace {

using llvm::Error;

bool is_on(const Site &site, llvm::StringRef name, bool absent) {
  const ir::AttrValue *value = site.app.attr(name);
  return value && value->form != ir::AttrForm::Null ? rules::flag_attr(site.app, name) : absent;
}
Error not_square(const Site &site) { return cannot_run(site, "its matrices are not square"); }
template <class T> bool is_square(View<const T> a) {
  return a.rank() >= 2 && a.dims->back() == a.dim(a.rank() - 2);
}
template <class T> View<T> result(const Call<T> &call, unsigned i) {
  return i < call.results.size() ? call.results[i] : View<T>();
}

// Each matrix becomes one of the same extents.
template <class T, class F> Error map_matrices(const Call<T> &call, const F &f) {
  View<const T> a = call.operand("a");
  if (!is_square(a))
    return not_square(call.site);
  return each_matrix_of(*a.dims, [&](int64_t, int64_t at) -> Error {
    std::optional<Matrix<T>> made = f(Matrix<T>(a, at));
    if (!made)
      return cannot_run(call.site, "a matrix is not positive definite");
    made->store(call.results[0], at);
    return Error::success();
  });
}

template <class T> Error inverse(const Call<T> &call) {
  bool of_factor = bare_name(call.site) == "cholesky_inverse";
  bool upper = is_on(call.site, "upper", false);
  return map_matrices(call, [&](const Matrix<T> &a) -> std::optional<Matrix<T>> {
    if (!of_factor)
      return inverse_of(a);
    Matrix<T> inverted = solve_triangular(a, Matrix<T>::identity(a.rows), upper, false);
    return upper ? inverted * inverted.adjoint() : inverted.adjoint() * inverted;
  });
}

template <class T> Error cholesky(const Call<T> &call) {
  bool upper = is_on(call.site, "upper", false);
  return map_matrices(call, [&](const Matrix<T> &a) {
    std::optional<Matrix<T>> l = cholesky_of(symmetric_part(a));
    return l && upper ? std::optional(l->adjoint()) : l;
  });
}

// By its series near zero, squared as often as it was halved.
template <class T> Matrix<T> exponential(Matrix<T> a) {
  double largest = 0;
  for (int64_t i = 0; i < a.rows; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < a.columns; ++j)
      sum += magnitude(a(i, j));
    largest = std::max(largest, sum);
  }
  int halvings = 0;
  while (largest > 0.25 && std::isfinite(largest) && halvings < 1000)
    largest /= 2, ++halvings;
  a = T(std::ldexp(1.0, -halvings)) * std::move(a);
  Matrix<T> sum = Matrix<T>::identity(a.rows), term = sum;
  for (int k = 1; k <= 14; ++k) {
    term = T(1.0 / k) * (term * a);
    sum = sum + term;
  }
  for (; halvings; --halvings)
    sum = sum * sum;
  return sum;
}
template <class T> Error matrix_exp(const Call<T> &call) {
  return map_matrices(call, [](const Matrix<T> &a) { return std::optional(exponential<T>(a)); });
}

template <class T> Error matrix_power(const Call<T> &call) {
  auto n = static_cast<int64_t>(argument(call.site, {"n"}, 1).value_or(1));
  return map_matrices(call, [&](const Matrix<T> &a) {
    Matrix<T> base = n < 0 ? inverse_of(a) : a, power = Matrix<T>::identity(a.rows);
    for (int64_t left = std::abs(n); left; left >>= 1) {
      if (left & 1)
        power = power * base;
      if (left > 1)
        base = base * base;
    }
    return std::optional(std::move(power));
  });
}

// Determinants: the product of pivots, or its sign and the logarithm of its magnitude.

template <class T> struct SignLog { T sign = T(1), log = T(0); };
template <class T> SignLog<T> sign_log(const LU<T> &lu) {
  SignLog<T> out{T(lu.sign), T(0)};
  for (int64_t i = 0; i < lu.both.rows; ++i) {
    const T &pivot = lu.both(i, i);
    double size = magnitude(pivot);
    if (size == 0)
      return {T(0), T(-kInfinity)};
    if constexpr (std::is_same_v<T, Complex>)
      out.sign *= pivot / size, out.log += std::log(size);
    else
      out.sign = plain(pivot) < 0 ? -out.sign : out.sign, out.log = out.log + log(abs(pivot));
  }
  return out;
}
template <class T, class F> Error each_determinant(const Call<T> &call, const F &f) {
  View<const T> a = call.operand("a");
  if (!is_square(a))
    return not_square(call.site);
  return each_matrix_of(*a.dims, [&](int64_t i, int64_t at) {
    f(i, lu_of(Matrix<T>(a, at)));
    return Error::success();
  });
}
template <class T> Error det(const Call<T> &call) {
  return each_determinant(call, [&](int64_t i, const LU<T> &lu) {
    T product = T(lu.sign);
    for (int64_t k = 0; k < lu.both.rows; ++k)
      product = product * lu.both(k, k);
    call.results[0][i] = product;
  });
}
template <class T> Error logdet(const Call<T> &call) {
  return each_determinant(call, [&](int64_t i, const LU<T> &lu) {
    SignLog<T> found = sign_log(lu);
    if constexpr (std::is_same_v<T, Complex>)
      call.results[0][i] = found.log + std::log(found.sign);
    else
      call.results[0][i] = plain(found.sign) < 0 ? T(kNaN) : found.log;
  });
}
template <class T> Error slogdet(const Call<T> &call) {
  return each_determinant(call, [&](int64_t i, const LU<T> &lu) {
    SignLog<T> found = sign_log(lu);
    if (call.results[0])
      call.results[0][i] = found.sign;
    if (View<T> log = result(call, 1))
      log[i] = found.log;
  });
}

// Systems of equations. `b` may be a vector for each matrix; `right`: x a = b.

template <class T, class F> Error solve_each(const Call<T> &call, bool right, const F &solve_one) {
  View<const T> a = call.operand("a"), b = call.operand("b");
  View<T> to = call.results[0];
  if (!is_square(a))
    return not_square(call.site);
  if (!to)
    return Error::success();
  bool vector =
      b.rank() + 1 == a.rank() && std::equal(b.dims->begin(), b.dims->end(), a.dims->begin());
  Dims of_b = *b.dims, of_to = *to.dims;
  if (vector)
    of_b.push_back(1), of_to.push_back(1);
  View<const T> from = b;
  from.dims = &of_b;
  if (from.rank() < 2)
    return cannot_run(call.site, "its right-hand side is neither vector nor matrix");
  int64_t size = of_to[of_to.size() - 1] * of_to[of_to.size() - 2];
  return each_matrix_of(llvm::ArrayRef<int64_t>(of_to).drop_back(2), *a.dims, of_b,
                        [&](int64_t i, int64_t a_at, int64_t b_at) {
                          Matrix<T> left(a, a_at), given(from, b_at);
                          // x a = b is a^H x^H = b^H.
                          Matrix<T> x = right ? solve_one(left.adjoint(), given.adjoint()).adjoint()
                                              : solve_one(left, given);
                          x.store(to, i * size);
                          return Error::success();
                        });
}

template <class T> Error solve_row(const Call<T> &call) {
  return solve_each(call, !is_on(call.site, "left", true),
                    [](const Matrix<T> &a, const Matrix<T> &b) { return solve(lu_of(a), b); });
}

template <class T> void store_pivots(const LU<T> &lu, View<T> to, int64_t i, int64_t first) {
  auto n = static_cast<int64_t>(lu.pivots.size());
  for (int64_t k = 0; to && k < n; ++k)
    to[i * n + k] = T(static_cast<double>(lu.pivots[static_cast<size_t>(k)] + first));
}

// The solution; and the factorisation, its pivots and how it went, as far as there are places.
template <class T> Error solve_ex(const Call<T> &call) {
  if (Error wrong = solve_row(call))
    return wrong;
  View<const T> a = call.operand("a");
  if (call.results.size() < 3)
    return Error::success();
  return each_matrix_of(*a.dims, [&](int64_t i, int64_t at) {
    LU<T> lu = lu_of(Matrix<T>(a, at));
    lu.both.store(call.results[1], at);
    store_pivots(lu, call.results[2], i, 1);
    return Error::success();
  });
}

template <class T> Error triangular_solve(const Call<T> &call) {
  const Site &site = call.site;
  bool upper =
      site.app.attr("lower") ? !rules::flag_attr(site.app, "lower") : is_on(site, "upper", true);
  bool unit = is_on(site, "unitriangular", false) || is_on(site, "unit_diagonal", false);
  bool conjugates = is_on(site, "conjugate_a", false);
  bool turned = is_on(site, "transpose", false) || is_on(site, "transpose_a", false);
  bool right = !is_on(site, "left", true) || !is_on(site, "left_side", true);
  View<const T> a = call.operand("a");
  if (View<T> copy = result(call, 1)) // torch gives the triangle back
    std::copy_n(a.data, std::min(a.size(), copy.size()), copy.data);
  auto conjugated = [](Matrix<T> m) {
    for (T &cell : m.cells)
      cell = conjugate(cell);
    return m;
  };
  return solve_each(call, right, [&](Matrix<T> m, const Matrix<T> &b) {
    bool above = right ? !upper : upper; // the adjoint was taken
    if (turned)
      m = conjugated(m.adjoint()), above = !above;
    if (conjugates)
      m = conjugated(std::move(m));
    return solve_triangular(m, b, above, unit);
  });
}

template <class T> Error cholesky_solve(const Call<T> &call) {
  bool upper = is_on(call.site, "upper", false);
  return solve_each(call, false, [&](const Matrix<T> &m, const Matrix<T> &b) {
    Matrix<T> l = upper ? m.adjoint() : m;
    return solve_triangular(l.adjoint(), solve_triangular(l, b, false, false), true, false);
  });
}

// torch passes the pivots in a place that the row leaves out.
template <class T> Error lu_solve(const Call<T> &call) {
  View<const T> pivots;
  for (const View<const T> &arg : call.args)
    if (arg && ir::info(arg.dtype).form == ir::DTypeClass::Integer)
      pivots = arg;
  if (!pivots)
    return cannot_run(call.site, "its pivots are no operand of the row");
  int64_t matrix = 0;
  return solve_each(call, false, [&](const Matrix<T> &m, const Matrix<T> &b) {
    LU<T> lu{m, {}, {}, 1};
    lu.order.resize(static_cast<size_t>(m.rows));
    std::iota(lu.order.begin(), lu.order.end(), 0);
    int64_t first = matrix++ * m.rows % std::max<int64_t>(pivots.size(), 1);
    for (int64_t k = 0; k < m.rows; ++k) {
      auto with = static_cast<int64_t>(plain(pivots[first + k])) - 1;
      if (with >= 0 && with < m.rows)
        std::swap(lu.order[static_cast<size_t>(k)], lu.order[static_cast<size_t>(with)]);
    }
    return solve(lu, b);
  });
}

// Three diagonals; what stands outside of the matrix is not looked at.
template <class T> Error tridiagonal_solve(const Call<T> &call) {
  View<const T> lower = call.operand("l"), middle = call.operand("d"), upper = call.operand("u"),
                b = call.operand("b");
  int64_t n = middle.dims->back(), columns = b.dims->back();
  for (int64_t i = 0; i < middle.size() / std::max<int64_t>(n, 1); ++i) {
    Matrix<T> a(n, n);
    for (int64_t k = 0; k < n; ++k) {
      a(k, k) = middle[i * n + k];
      if (k > 0)
        a(k, k - 1) = lower[i * n + k];
      if (k + 1 < n)
        a(k, k + 1) = upper[i * n + k];
    }
    solve(lu_of(std::move(a)), Matrix<T>(b, i * n * columns))
        .store(call.results[0], i * n * columns);
  }
  return Error::success();
}

// Exchanges of rows one after the other, as the order that they lead to.
Error pivots_to_permutation(const Call<double> &call) {
  View<const double> a = call.operand("a");
  View<double> to = call.results[0];
  int64_t k = a.dims->back(), m = to.dims->back();
  for (int64_t i = 0; i < to.size() / std::max<int64_t>(m, 1); ++i) {
    double *order = to.data + i * m;
    std::iota(order, order + m, 0);
    for (int64_t j = 0; j < k; ++j) {
      std::optional<int64_t> with = position(a[i * k + j], m);
      if (!with || j >= m)
        return no_position(call.site, a[i * k + j], m);
      std::swap(order[j], order[*with]);
    }
  }
  return Error::success();
}

// The factors apart (`linalg_lu`: the permutation, L, U), or in one matrix with the exchanges.
template <class T> Error lu(const Call<T> &call) {
  const Site &site = call.site;
  View<const T> a = call.operand("a");
  View<T> second = result(call, 1), third = result(call, 2);
  bool together = second && ir::info(second.dtype).form == ir::DTypeClass::Integer;
  bool of_torch = bare_name(site).startswith("linalg_lu");
  int64_t m = a.dim(a.rank() - 2), n = a.dims->back(), k = std::min(m, n);
  return each_matrix_of(*a.dims, [&](int64_t i, int64_t at) {
    LU<T> found = lu_of(Matrix<T>(a, at), is_on(site, "pivot", true));
    if (together) {
      found.both.store(call.results[0], at);
      store_pivots(found, second, i, of_torch ? 1 : 0);
      for (int64_t row = 0; third && !of_torch && row < m; ++row)
        third[i * m + row] = T(static_cast<double>(found.order[static_cast<size_t>(row)]));
      return Error::success();
    }
    Matrix<T> order(m, m), l(m, k), u(k, n);
    for (int64_t row = 0; row < m; ++row) {
      order(found.order[static_cast<size_t>(row)], row) = T(1);
      for (int64_t c = 0; c < k && c <= row; ++c)
        l(row, c) = c == row ? T(1) : found.both(row, c);
      for (int64_t c = row; row < k && c < n; ++c)
        u(row, c) = found.both(row, c);
    }
    order.store(call.results[0], i * m * m);
    l.store(second, i * m * k);
    u.store(third, i * k * n);
    return Error::success();
  });
}

constexpr KernelDef kLinalg[] = {
    {.row = "inverse", .real = inverse<double>, .complex = inverse<Complex>, .taped = inverse<Var>},
    {.row = "cholesky",
     .real = cholesky<double>,
     .complex = cholesky<Complex>,
     .taped = cholesky<Var>},
    {.row = "matrix_exp",
     .real = matrix_exp<double>,
     .complex = matrix_exp<Complex>,
     .taped = matrix_exp<Var>},
    {.row = "matrix_power",
     .real = matrix_power<double>,
     .complex = matrix_power<Complex>,
     .taped = matrix_power<Var>},
    {.row = "det", .real = det<double>, .complex = det<Complex>, .taped = det<Var>},
    {.row = "logdet", .real = logdet<double>, .complex = logdet<Complex>, .taped = logdet<Var>},
    {.row = "slogdet", .real = slogdet<double>, .complex = slogdet<Complex>, .taped = slogdet<Var>},
    {.row = "solve",
     .real = solve_row<double>,
     .complex = solve_row<Complex>,
     .taped = solve_row<Var>},
    {.row = "solve_ex",
     .real = solve_ex<double>,
     .complex = solve_ex<Complex>,
     .taped = solve_ex<Var>},
    {.row = "triangular_solve",
     .real = triangular_solve<double>,
     .complex = triangular_solve<Complex>,
     .taped = triangular_solve<Var>},
    {.row = "cholesky_solve",
     .real = cholesky_solve<double>,
     .complex = cholesky_solve<Complex>,
     .taped = cholesky_solve<Var>},
    {.row = "lu_solve",
     .real = lu_solve<double>,
     .complex = lu_solve<Complex>,
     .taped = lu_solve<Var>},
    {.row = "tridiagonal_solve",
     .real = tridiagonal_solve<double>,
     .complex = tridiagonal_solve<Complex>,
     .taped = tridiagonal_solve<Var>},
    {.row = "pivots_to_permutation", .real = pivots_to_permutation},
    {.row = "lu", .real = lu<double>, .complex = lu<Complex>, .taped = lu<Var>},
};

} // namespace

llvm::ArrayRef<KernelDef> linalg_kernels() { return kLinalg; }

} // namespace spmd::runtime
