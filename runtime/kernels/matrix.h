// Small dense matrices of real, complex or differentiated numbers, and what is solved with them:
// the algorithms of textbooks, written once for all three.
#pragma once

#include "runtime/kernels/positions.h"

#include <numeric>

namespace spmd::runtime {

inline double conjugate(double x) { return x; }
inline Complex conjugate(const Complex &x) { return std::conj(x); }
inline Var conjugate(Var x) { return x; }
template <class T> double magnitude(const T &x) {
  if constexpr (std::is_same_v<T, Complex>)
    return std::abs(x);
  else
    return std::abs(plain(x));
}
// |x|^2, as a number of the same type.
template <class T> T square_of(const T &x) { return x * conjugate(x); }

template <class T> struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<T> cells;

  Matrix(int64_t rows, int64_t columns)
      : rows(rows), columns(columns), cells(static_cast<size_t>(rows * columns), T(0)) {}
  // The matrix of the last two dimensions that begins at `at`.
  Matrix(View<const T> from, int64_t at) : Matrix(from.dim(from.rank() - 2), from.dims->back()) {
    std::copy_n(from.data + at, rows * columns, cells.data());
  }
  static Matrix identity(int64_t n) {
    Matrix made(n, n);
    for (int64_t i = 0; i < n; ++i)
      made(i, i) = T(1);
    return made;
  }
  T &operator()(int64_t i, int64_t j) { return cells[static_cast<size_t>(i * columns + j)]; }
  const T &operator()(int64_t i, int64_t j) const {
    return cells[static_cast<size_t>(i * columns + j)];
  }
  // Into a result of these extents.
  void store(View<T> to, int64_t at) const {
    if (to)
      std::copy(cells.begin(), cells.end(), to.data + at);
  }
  Matrix adjoint() const {
    Matrix made(columns, rows);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        made(j, i) = conjugate((*this)(i, j));
    return made;
  }
  // The first columns.
  Matrix left(int64_t n) const {
    Matrix made(rows, n);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < n; ++j)
        made(i, j) = (*this)(i, j);
    return made;
  }
  friend Matrix operator*(const Matrix &a, const Matrix &b) {
    Matrix made(a.rows, b.columns);
    for (int64_t i = 0; i < a.rows; ++i)
      for (int64_t k = 0; k < a.columns; ++k)
        for (int64_t j = 0; j < b.columns; ++j)
          made(i, j) += a(i, k) * b(k, j);
    return made;
  }
  friend Matrix operator+(Matrix a, const Matrix &b) {
    for (size_t i = 0; i < a.cells.size(); ++i)
      a.cells[i] += b.cells[i];
    return a;
  }
  friend Matrix operator*(T factor, Matrix a) {
    for (T &cell : a.cells)
      cell = factor * cell;
    return a;
  }
};

// (a + a^H) / 2: what a function of Hermitian matrices is a function of.
template <class T> Matrix<T> symmetric_part(const Matrix<T> &a) {
  return T(0.5) * (a + a.adjoint());
}

// L and U in one matrix, rows exchanged so that the pivot is the largest: row i of the product is
// row order[i] of the original; `pivots`: with which row each was exchanged.
template <class T> struct LU {
  Matrix<T> both;
  std::vector<int64_t> order, pivots;
};
template <class T> LU<T> lu_of(Matrix<T> a) {
  LU<T> out{std::move(a), {}, {}};
  Matrix<T> &m = out.both;
  out.order.resize(static_cast<size_t>(m.rows));
  std::iota(out.order.begin(), out.order.end(), 0);
  for (int64_t k = 0; k < std::min(m.rows, m.columns); ++k) {
    int64_t best = k;
    for (int64_t i = k + 1; i < m.rows; ++i)
      if (magnitude(m(i, k)) > magnitude(m(best, k)))
        best = i;
    out.pivots.push_back(best);
    if (best != k) {
      for (int64_t j = 0; j < m.columns; ++j)
        std::swap(m(k, j), m(best, j));
      std::swap(out.order[static_cast<size_t>(k)], out.order[static_cast<size_t>(best)]);
    }
    for (int64_t i = k + 1; magnitude(m(k, k)) != 0 && i < m.rows; ++i) {
      m(i, k) = m(i, k) / m(k, k);
      for (int64_t j = k + 1; j < m.columns; ++j)
        m(i, j) = m(i, j) - m(i, k) * m(k, j);
    }
  }
  return out;
}

// x with a x = b, where a is one triangle of a square matrix.
template <class T>
Matrix<T> solve_triangular(const Matrix<T> &a, Matrix<T> b, bool upper, bool unit) {
  for (int64_t n = 0; n < a.rows; ++n) {
    int64_t i = upper ? a.rows - 1 - n : n;
    for (int64_t k = upper ? i + 1 : 0; k < (upper ? a.rows : i); ++k)
      for (int64_t j = 0; j < b.columns; ++j)
        b(i, j) = b(i, j) - a(i, k) * b(k, j);
    for (int64_t j = 0; !unit && j < b.columns; ++j)
      b(i, j) = b(i, j) / a(i, i);
  }
  return b;
}
template <class T> Matrix<T> solve(const LU<T> &lu, const Matrix<T> &b) {
  Matrix<T> x(b.rows, b.columns);
  for (int64_t i = 0; i < b.rows; ++i)
    for (int64_t j = 0; j < b.columns; ++j)
      x(i, j) = b(lu.order[static_cast<size_t>(i)], j);
  return solve_triangular(lu.both, solve_triangular(lu.both, std::move(x), false, true), true,
                          false);
}
template <class T> Matrix<T> inverse_of(const Matrix<T> &a) {
  return solve(lu_of(a), Matrix<T>::identity(a.rows));
}

// The lower factor; none if the matrix is not positive definite.
template <class T> std::optional<Matrix<T>> cholesky_of(const Matrix<T> &a) {
  Matrix<T> l(a.rows, a.rows);
  for (int64_t j = 0; j < a.rows; ++j) {
    T left = a(j, j);
    for (int64_t k = 0; k < j; ++k)
      left = left - square_of(l(j, k));
    if (!(plain(left) > 0))
      return std::nullopt;
    l(j, j) = sqrt(left);
    for (int64_t i = j + 1; i < a.rows; ++i) {
      T sum = a(i, j);
      for (int64_t k = 0; k < j; ++k)
        sum = sum - l(i, k) * conjugate(l(j, k));
      l(i, j) = sum / l(j, j);
    }
  }
  return l;
}

// As LAPACK leaves it: R above, the reflectors I - tau v v^H below (v begins with 1).
template <class T> struct Reflectors {
  Matrix<T> both;
  std::vector<T> taus;
};

// Rows `k` and on of the columns `from` and on of m become (I - tau v v^H) m, with v below the
// diagonal of column k of `vectors`.
template <class T>
void reflect(const Matrix<T> &vectors, int64_t k, const T &tau, Matrix<T> &m, int64_t from) {
  for (int64_t j = from; j < m.columns; ++j) {
    T sum = m(k, j);
    for (int64_t i = k + 1; i < m.rows; ++i)
      sum = sum + conjugate(vectors(i, k)) * m(i, j);
    sum = tau * sum;
    m(k, j) = m(k, j) - sum;
    for (int64_t i = k + 1; i < m.rows; ++i)
      m(i, j) = m(i, j) - vectors(i, k) * sum;
  }
}

template <class T> Reflectors<T> reflectors_of(Matrix<T> a) {
  Reflectors<T> out{std::move(a), {}};
  Matrix<T> &m = out.both;
  for (int64_t k = 0; k < std::min(m.rows, m.columns); ++k) {
    T rest(0);
    for (int64_t i = k + 1; i < m.rows; ++i)
      rest = rest + square_of(m(i, k));
    T alpha = m(k, k);
    bool real = true;
    if constexpr (std::is_same_v<T, Complex>)
      real = alpha.imag() == 0;
    if (plain(rest) == 0 && real) {
      out.taus.push_back(T(0));
      continue;
    }
    T beta = sqrt(square_of(alpha) + rest);
    beta = plain(alpha) < 0 ? beta : -beta;
    T tau = (beta - alpha) / beta, scale = T(1) / (alpha - beta);
    for (int64_t i = k + 1; i < m.rows; ++i)
      m(i, k) = m(i, k) * scale;
    m(k, k) = T(1);
    reflect(m, k, conjugate(tau), m, k + 1);
    m(k, k) = beta;
    out.taus.push_back(tau);
  }
  return out;
}

// The first `columns` columns of the product of the reflectors.
template <class T> Matrix<T> orthogonal_of(const Reflectors<T> &from, int64_t columns) {
  Matrix<T> q(from.both.rows, columns);
  for (int64_t i = 0; i < std::min(q.rows, q.columns); ++i)
    q(i, i) = T(1);
  for (auto k = static_cast<int64_t>(from.taus.size()); k-- > 0;)
    reflect(from.both, k, from.taus[static_cast<size_t>(k)], q, 0);
  return q;
}
template <class T> Matrix<T> upper_part(const Matrix<T> &m, int64_t rows) {
  Matrix<T> r(rows, m.columns);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = i; j < m.columns; ++j)
      r(i, j) = m(i, j);
  return r;
}

// Calls f(i, a_at, b_at) for the matrices of the last two dimensions of `to`, the i-th one, and of
// two tensors broadcast against it.
template <class F>
llvm::Error each_matrix_of(llvm::ArrayRef<int64_t> lead, const Dims &a, const Dims &b, const F &f) {
  auto size = [](const Dims &dims) {
    return dims.size() < 2 ? 0 : dims[dims.size() - 1] * dims[dims.size() - 2];
  };
  auto over = [&](const Dims &dims) {
    return strides_over(llvm::ArrayRef<int64_t>(dims).drop_back(std::min<size_t>(2, dims.size())),
                        lead);
  };
  int64_t i = 0;
  for (Walk walk(lead, {over(a), over(b)}); walk; ++walk, ++i)
    if (llvm::Error wrong = f(i, walk.offset(0) * size(a), walk.offset(1) * size(b)))
      return wrong;
  return llvm::Error::success();
}
template <class F> llvm::Error each_matrix_of(const Dims &a, const F &f) {
  auto lead = llvm::ArrayRef<int64_t>(a).drop_back(2);
  return each_matrix_of(lead, a, a, [&](int64_t i, int64_t at, int64_t) { return f(i, at); });
}

} // namespace spmd::runtime
