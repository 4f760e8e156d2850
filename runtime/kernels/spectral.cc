// Rows of orthogonal factors, singular values and eigenvalues. Which results there are, and in
// which order, follows from the spelling and from the extents.
#include "runtime/kernels/spectral.h"
#include "runtime/kernels/rows.h"

namespace spmd::runtime {

namespace {

using llvm::Error;

template <class T> View<T> result(const Call<T> &call, unsigned i) {
  return i < call.results.size() ? call.results[i] : View<T>();
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
bool is_off(const Site &site, llvm::StringRef name) {
  const ir::AttrValue *value = site.app.attr(name);
  return value && value->form != ir::AttrForm::Null && !value->as_bool();
}

template <class T> double tolerance(const Site &site, const Singular<T> &found) {
  double largest = found.values.empty() ? 0 : plain(found.values.front());
  double usual = static_cast<double>(std::max(found.u.rows, found.v.rows)) *
                 (ir::info(site.dtype(site.operand("a"))).bytes >= 8 ? 0x1p-52 : 0x1p-23);
  double share = site.number_attr("rtol", site.number_attr("rcond", -1));
  if (share < 0)
    share = site.app.attr("atol") ? 0 : usual;
  return std::max(site.number_attr("atol", 0), share * largest);
}

template <class T> Matrix<T> pseudoinverse(const Site &site, const Matrix<T> &a) {
  Singular<T> found = singular_of(a);
  double least = tolerance(site, found);
  Matrix<T> scaled = found.v;
  for (int64_t j = 0; j < scaled.columns; ++j) {
    const T &value = found.values[static_cast<size_t>(j)];
    for (int64_t i = 0; i < scaled.rows; ++i)
      scaled(i, j) = plain(value) > least ? T(scaled(i, j) / value) : T(0);
  }
  return scaled * found.u.adjoint();
}

template <class T> Error pinv(const Call<T> &call) {
  View<const T> a = call.operand("a");
  return each_matrix_of(*a.dims, [&](int64_t i, int64_t at) {
    store(call.results[0], pseudoinverse(call.site, Matrix<T>(a, at)), i);
    return Error::success();
  });
}

// The solution of least norm; residuals of systems that determine it, rank, singular values.
template <class T> Error lstsq(const Call<T> &call) {
  View<const T> a = call.operand("a"), b = call.operand("b");
  if (b.rank() != a.rank())
    return cannot_run(call.site, "its right-hand side is no matrix");
  auto lead = llvm::ArrayRef<int64_t>(*a.dims).drop_back(2);
  return each_matrix_of(lead, *a.dims, *b.dims, [&](int64_t i, int64_t at, int64_t b_at) {
    Matrix<T> left(a, at), right(b, b_at), x = pseudoinverse(call.site, left) * right;
    store(call.results[0], x, i);
    Singular<T> found = singular_of(left);
    double least = tolerance(call.site, found);
    auto rank = std::count_if(found.values.begin(), found.values.end(),
                              [&](const T &value) { return plain(value) > least; });
    Matrix<T> rest = right + T(-1) * (left * x);
    if (View<T> residuals = result(call, 1); residuals && residuals.size())
      for (int64_t j = 0; rank == left.columns && j < rest.columns; ++j) {
        T sum(0);
        for (int64_t k = 0; k < rest.rows; ++k)
          sum = sum + square_of(rest(k, j));
        residuals[i * rest.columns + j] = sum;
      }
    if (View<T> ranks = result(call, 2); ranks && i < ranks.size())
      ranks[i] = T(static_cast<double>(rank));
    store(result(call, 3), found.values, i);
    return Error::success();
  });
}

// Singular values alone, or numbers that are made of them.
template <class T>
bool svd_number(const Site &site, const Singular<T> &found, View<T> to, int64_t i) {
  llvm::StringRef name = bare_name(site);
  if (name == "linalg_matrix_rank") {
    double least = std::max(tolerance(site, found), site.number_attr("tol", 0));
    to[i] =
        T(static_cast<double>(std::count_if(found.values.begin(), found.values.end(),
                                            [&](const T &value) { return plain(value) > least; })));
    return true;
  }
  if (name != "linalg_cond")
    return false;
  bool inverted = site.number_attr("p", 2) == -2;
  T ratio = found.values.front() / found.values.back();
  to[i] = inverted ? T(1) / ratio : ratio;
  return true;
}

template <class T> Error svd(const Call<T> &call) {
  const Site &site = call.site;
  View<const T> a = call.operand("a");
  llvm::StringRef name = bare_name(site);
  if (name == "schur" || name == "hessenberg" || name == "tridiagonal")
    return cannot_run(site, "this factorisation is not known");
  if (name == "linalg_cond" && std::abs(site.number_attr("p", 2)) != 2)
    return cannot_run(site, "this norm is not known");
  int64_t m = a.dim(a.rank() - 2), n = a.dims->back();
  // JAX gives the values first; `torch.svd` the second factor itself, not its adjoint.
  View<T> first = call.results[0], second = result(call, 1), third = result(call, 2);
  bool values_first = first && first.rank() + 1 == a.rank();
  View<T> u = values_first ? second : first, values = values_first ? first : second;
  bool plain_v = !values_first && name == "svd" &&
                 !site.app.program.op_name(site.app.op.spelling).contains("linalg");
  return each_matrix_of(*a.dims, [&](int64_t i, int64_t at) {
    Singular<T> found = singular_of(Matrix<T>(a, at));
    if (first && first.rank() + 2 == a.rank() && svd_number(site, found, first, i))
      return Error::success();
    store(values, found.values, i);
    if (u)
      store(u, completed(found.u, u.rank() >= 2 ? u.dims->back() : m), i);
    if (third) {
      int64_t columns = third.rank() < 2 ? n
                        : plain_v        ? third.dims->back()
                                         : third.dim(third.rank() - 2);
      Matrix<T> v = completed(found.v, columns);
      store(third, plain_v ? v : v.adjoint(), i);
    }
    return Error::success();
  });
}

template <class T> Error qr(const Call<T> &call) {
  const Site &site = call.site;
  View<const T> a = call.operand("a");
  View<T> q = call.results[0], r = result(call, 1);
  if (rules::flag_attr(site.app, "pivoting"))
    return cannot_run(site, "attribute `pivoting` is not known");
  return each_matrix_of(*a.dims, [&](int64_t i, int64_t at) {
    Reflectors<T> found = reflectors_of(Matrix<T>(a, at));
    if (bare_name(site) == "geqrf") {
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

// Products with the orthogonal matrix that reflectors stand for.
template <class T> Error ormqr(const Call<T> &call) {
  const Site &site = call.site;
  View<const T> a = call.operand("a"), t = call.operand("t"), b = call.operand("b");
  bool right = is_off(site, "left"), turned = rules::flag_attr(site.app, "transpose");
  int64_t taus = t.dims->back();
  auto lead = llvm::ArrayRef<int64_t>(*b.dims).drop_back(2);
  return each_matrix_of(lead, *a.dims, *b.dims, [&](int64_t i, int64_t at, int64_t b_at) {
    Reflectors<T> from{Matrix<T>(a, at), {}};
    int64_t first = i * taus % std::max<int64_t>(t.size(), 1);
    from.taus.assign(t.data + first, t.data + first + taus);
    Matrix<T> q = orthogonal_of(from, from.both.rows), other(b, b_at);
    if (turned)
      q = q.adjoint();
    store(call.results[0], right ? other * q : q * other, i);
    return Error::success();
  });
}

template <class T> Error eigh(const Call<T> &call) {
  View<const T> a = call.operand("a");
  View<T> first = call.results[0], second = result(call, 1);
  // torch gives the values first, JAX the vectors.
  bool values_first = first ? first.rank() + 1 == a.rank() : second && second.rank() == a.rank();
  return each_matrix_of(*a.dims, [&](int64_t i, int64_t at) {
    Eigen<T> found = eigen_of_hermitian(symmetric_part(Matrix<T>(a, at)));
    store(values_first ? first : second, found.values, i);
    store(values_first ? second : first, found.vectors, i);
    return Error::success();
  });
}

Error eig(const Call<Complex> &call) {
  View<const Complex> a = call.operand("a");
  if (rules::flag_attr(call.site.app, "compute_left_eigenvectors"))
    return cannot_run(call.site, "left eigenvectors are not known");
  return each_matrix_of(*a.dims, [&](int64_t i, int64_t at) -> Error {
    std::optional<Eigen<Complex>> found = eigen_of(Matrix<Complex>(a, at));
    if (!found)
      return cannot_run(call.site, "its eigenvalues do not converge");
    store(call.results[0], found->values, i);
    store(result(call, 1), found->vectors, i);
    return Error::success();
  });
}

constexpr KernelDef kSpectral[] = {
    {.row = "pinv", .real = pinv<double>, .complex = pinv<Complex>, .taped = pinv<Var>},
    {.row = "lstsq", .real = lstsq<double>, .complex = lstsq<Complex>, .taped = lstsq<Var>},
    {.row = "svd", .real = svd<double>, .complex = svd<Complex>, .taped = svd<Var>},
    {.row = "qr", .real = qr<double>, .complex = qr<Complex>, .taped = qr<Var>},
    {.row = "ormqr", .real = ormqr<double>, .complex = ormqr<Complex>, .taped = ormqr<Var>},
    {.row = "eigh", .real = eigh<double>, .complex = eigh<Complex>, .taped = eigh<Var>},
    {.row = "eig", .complex = eig},
};

} // namespace

llvm::ArrayRef<KernelDef> spectral_kernels() { return kSpectral; }

} // namespace spmd::runtime
