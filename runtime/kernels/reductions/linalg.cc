// Inverses, Cholesky and QR factors, systems of equations.
#include "runtime/kernels/matrix.h"
#include "runtime/kernels/rows.h"

namespace spmd::runtime {

namespace {

using llvm::Error;

bool is_on(const KernelContext &context, llvm::StringRef name, bool absent) {
  const ir::AttrValue *value = context.app.attr(name);
  return value && value->form != ir::AttrForm::Null ? rules::flag_attr(context.app, name) : absent;
}
Error not_square(const KernelContext &context) {
  return cannot_run(context, "its matrices are not square");
}
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
    return not_square(call.context);
  return each_matrix_of(*a.dims, [&](int64_t, int64_t at) -> Error {
    std::optional<Matrix<T>> made = f(Matrix<T>(a, at));
    if (!made)
      return cannot_run(call.context, "a matrix is not positive definite");
    made->store(call.results[0], at);
    return Error::success();
  });
}

template <class T> Error inverse(const Call<T> &call) {
  bool of_factor = call.context.variant() == Variant::FromCholeskyFactor;
  bool upper = is_on(call.context, "upper", false);
  return map_matrices(call, [&](const Matrix<T> &a) -> std::optional<Matrix<T>> {
    if (!of_factor)
      return inverse_of(a);
    Matrix<T> inverted = solve_triangular(a, Matrix<T>::identity(a.rows), upper, false);
    return upper ? inverted * inverted.adjoint() : inverted.adjoint() * inverted;
  });
}

template <class T> Error cholesky(const Call<T> &call) {
  bool upper = is_on(call.context, "upper", false);
  return map_matrices(call, [&](const Matrix<T> &a) {
    std::optional<Matrix<T>> l = cholesky_of(symmetric_part(a));
    return l && upper ? std::optional(l->adjoint()) : l;
  });
}

// Systems of equations. `b` may be a vector for each matrix; `right`: x a = b.

template <class T, class F> Error solve_each(const Call<T> &call, bool right, const F &solve_one) {
  View<const T> a = call.operand("a"), b = call.operand("b");
  View<T> to = call.results[0];
  if (!is_square(a))
    return not_square(call.context);
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
    return cannot_run(call.context, "its right-hand side is neither vector nor matrix");
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
  return solve_each(call, !is_on(call.context, "left", true),
                    [](const Matrix<T> &a, const Matrix<T> &b) { return solve(lu_of(a), b); });
}

// The solution; and the factorisation, its pivots and how it went, as far as there are positions.
template <class T> Error solve_ex(const Call<T> &call) {
  if (Error wrong = solve_row(call))
    return wrong;
  View<const T> a = call.operand("a");
  if (call.results.size() < 3)
    return Error::success();
  return each_matrix_of(*a.dims, [&](int64_t i, int64_t at) {
    LU<T> lu = lu_of(Matrix<T>(a, at));
    lu.both.store(call.results[1], at);
    View<T> pivots = call.results[2];
    auto n = static_cast<int64_t>(lu.pivots.size());
    for (int64_t k = 0; pivots && k < n; ++k)
      pivots[i * n + k] = T(static_cast<double>(lu.pivots[static_cast<size_t>(k)] + 1));
    return Error::success();
  });
}

template <class T> Error triangular_solve(const Call<T> &call) {
  const KernelContext &context = call.context;
  bool upper = context.app.attr("lower") ? !rules::flag_attr(context.app, "lower")
                                         : is_on(context, "upper", true);
  bool unit = is_on(context, "unitriangular", false) || is_on(context, "unit_diagonal", false);
  bool conjugates = is_on(context, "conjugate_a", false);
  bool turned = is_on(context, "transpose", false) || is_on(context, "transpose_a", false);
  bool right = !is_on(context, "left", true) || !is_on(context, "left_side", true);
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
  bool upper = is_on(call.context, "upper", false);
  return solve_each(call, false, [&](const Matrix<T> &m, const Matrix<T> &b) {
    Matrix<T> l = upper ? m.adjoint() : m;
    return solve_triangular(l.adjoint(), solve_triangular(l, b, false, false), true, false);
  });
}

template <class T> void store(View<T> to, const std::vector<T> &values, int64_t i) {
  auto n = static_cast<int64_t>(values.size());
  for (int64_t k = 0; to && k < n && i * n + k < to.size(); ++k)
    to[i * n + k] = values[static_cast<size_t>(k)];
}
// A matrix where the i-th of the results stands, as large as it.
template <class T> void store(View<T> to, const Matrix<T> &m, int64_t i) {
  if (to && to.rank() >= 2 && (i + 1) * m.rows * m.columns <= to.size())
    m.store(to, i * m.rows * m.columns);
}

// The factors, or the reflectors that they are made of (`geqrf`).
template <class T> Error qr(const Call<T> &call) {
  const KernelContext &context = call.context;
  View<const T> a = call.operand("a");
  View<T> q = call.results[0], r = result(call, 1);
  if (rules::flag_attr(context.app, "pivoting"))
    return cannot_run(context, "attribute `pivoting` is not known");
  return each_matrix_of(*a.dims, [&](int64_t i, int64_t at) {
    Reflectors<T> found = reflectors_of(Matrix<T>(a, at));
    if (context.variant() == Variant::Reflectors) {
      store(q, found.both, i);
      store(r, found.taus, i);
      return Error::success();
    }
    if (q && q.size())
      store(q, orthogonal_of(found, q.dims->back()), i);
    if (r)
      store(r, upper_part(found.both, r.dim(r.rank() - 2)), i);
    return Error::success();
  });
}

constexpr KernelDef kLinalg[] = {
    {.row = "inverse", .real = inverse<double>, .complex = inverse<Complex>, .taped = inverse<Var>},
    {.row = "cholesky",
     .real = cholesky<double>,
     .complex = cholesky<Complex>,
     .taped = cholesky<Var>},
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
    {.row = "qr", .real = qr<double>, .complex = qr<Complex>, .taped = qr<Var>},
};

} // namespace

llvm::ArrayRef<KernelDef> linalg_kernels() { return kLinalg; }

} // namespace spmd::runtime
