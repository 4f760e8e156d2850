// Orthogonal factors, singular values and eigenvalues: by reflections, by Jacobi's rotations, and by
// shifted QR steps where the matrix is not Hermitian.
#pragma once

#include "runtime/kernels/matrix.h"

namespace spmd::runtime {

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

// The rotation of columns p and q, p' = c (p - conj(t) q) and q' = c (t p + q), after which
// [[alpha, gamma], [conj(gamma), beta]] is diagonal.
template <class T> struct Rotation { T t, c; };
template <class T> Rotation<T> rotation_of(const T &alpha, const T &beta, const T &gamma) {
  T apart = beta - alpha;
  T root = sqrt(apart * apart + T(4) * square_of(gamma));
  T t = T(2) * gamma / (plain(apart) < 0 ? apart - root : apart + root);
  return {t, T(1) / sqrt(T(1) + square_of(t))};
}
template <class T> void rotate(Matrix<T> &m, int64_t p, int64_t q, const Rotation<T> &by) {
  for (int64_t i = 0; i < m.rows; ++i) {
    T left = m(i, p), right = m(i, q);
    m(i, p) = by.c * (left - conjugate(by.t) * right);
    m(i, q) = by.c * (by.t * left + right);
  }
}

// Rotations are taken until what they would remove is rounding; derivatives need one sweep more than
// values do.
template <class T, class Gram> void sweep(int64_t n, const Gram &gram_and_rotate) {
  constexpr int kSweeps = 60;
  int more = Derived<T> ? 2 : 0;
  for (int round = 0; round < kSweeps; ++round) {
    bool small = true;
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q)
        small &= gram_and_rotate(p, q);
    if (small && more-- == 0)
      return;
  }
}
inline bool negligible(double gamma, double alpha, double beta) {
  return gamma <= 1e-16 * std::sqrt(std::abs(alpha * beta));
}

// Eigenvalues in ascending order, and eigenvectors as columns.
template <class T> struct Eigen {
  std::vector<T> values;
  Matrix<T> vectors;
};
template <class T> std::vector<int64_t> ascending(const std::vector<T> &values) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    return plain(values[static_cast<size_t>(i)]) < plain(values[static_cast<size_t>(j)]);
  });
  return order;
}
template <class T> Matrix<T> picked(const Matrix<T> &m, const std::vector<int64_t> &columns) {
  Matrix<T> out(m.rows, static_cast<int64_t>(columns.size()));
  for (int64_t i = 0; i < m.rows; ++i)
    for (int64_t j = 0; j < out.columns; ++j)
      out(i, j) = m(i, columns[static_cast<size_t>(j)]);
  return out;
}

template <class T> Eigen<T> eigen_of_hermitian(Matrix<T> a) {
  Matrix<T> vectors = Matrix<T>::identity(a.rows);
  double size = 0;
  for (const T &cell : a.cells)
    size = std::max(size, magnitude(cell));
  sweep<T>(a.rows, [&](int64_t p, int64_t q) {
    bool small = magnitude(a(p, q)) <= 1e-17 * size;
    if (magnitude(a(p, q)) == 0 && !Derived<T>)
      return true;
    if (magnitude(a(p, q)) == 0 && plain(a(p, p)) == plain(a(q, q)))
      return true; // nothing tells the two apart
    Rotation<T> by = rotation_of(a(p, p), a(q, q), a(p, q));
    rotate(a, p, q, by);
    a = a.adjoint();
    rotate(a, p, q, by);
    a = a.adjoint();
    rotate(vectors, p, q, by);
    return small;
  });
  std::vector<T> values;
  for (int64_t i = 0; i < a.rows; ++i)
    values.push_back(a(i, i));
  std::vector<int64_t> order = ascending(values);
  Eigen<T> out{{}, picked(vectors, order)};
  for (int64_t i : order)
    out.values.push_back(values[static_cast<size_t>(i)]);
  return out;
}

// a = U diag(values) V^H, values descending; min(m, n) columns of U and of V.
template <class T> struct Singular {
  Matrix<T> u;
  std::vector<T> values;
  Matrix<T> v;
};
template <class T> Singular<T> singular_of(const Matrix<T> &a) {
  if (a.rows < a.columns) {
    Singular<T> turned = singular_of(a.adjoint());
    return {std::move(turned.v), std::move(turned.values), std::move(turned.u)};
  }
  Matrix<T> u = a, v = Matrix<T>::identity(a.columns);
  sweep<T>(a.columns, [&](int64_t p, int64_t q) {
    T alpha(0), beta(0), gamma(0);
    for (int64_t i = 0; i < u.rows; ++i) {
      alpha = alpha + square_of(u(i, p));
      beta = beta + square_of(u(i, q));
      gamma = gamma + conjugate(u(i, p)) * u(i, q);
    }
    bool small = negligible(magnitude(gamma), plain(alpha), plain(beta));
    if (magnitude(gamma) == 0 && (!Derived<T> || plain(alpha) == plain(beta)))
      return true;
    Rotation<T> by = rotation_of(alpha, beta, gamma);
    rotate(u, p, q, by);
    rotate(v, p, q, by);
    return small;
  });
  std::vector<T> values;
  for (int64_t j = 0; j < u.columns; ++j) {
    T square(0);
    for (int64_t i = 0; i < u.rows; ++i)
      square = square + square_of(u(i, j));
    values.push_back(plain(square) > 0 ? T(sqrt(square)) : T(0));
  }
  std::vector<int64_t> order = ascending(values);
  std::reverse(order.begin(), order.end());
  Singular<T> out{picked(u, order), {}, picked(v, order)};
  for (int64_t j : order)
    out.values.push_back(values[static_cast<size_t>(j)]);
  for (int64_t j = 0; j < out.u.columns; ++j)
    for (int64_t i = 0; i < out.u.rows && plain(out.values[static_cast<size_t>(j)]) > 0; ++i)
      out.u(i, j) = out.u(i, j) / out.values[static_cast<size_t>(j)];
  return out;
}

// Orthonormal columns that complete those of q; columns of zeros are replaced too.
template <class T> Matrix<T> completed(const Matrix<T> &q, int64_t columns) {
  Matrix<T> out(q.rows, columns);
  int64_t candidate = 0;
  for (int64_t j = 0; j < columns; ++j) {
    auto norm = [&] {
      double sum = 0;
      for (int64_t i = 0; i < out.rows; ++i)
        sum += magnitude(out(i, j)) * magnitude(out(i, j));
      return std::sqrt(sum);
    };
    for (int64_t i = 0; j < q.columns && i < q.rows; ++i)
      out(i, j) = q(i, j);
    // Unit vectors, less what the other columns have of them, twice for rounding.
    while (norm() < 0.5 && candidate < q.rows) {
      for (int64_t i = 0; i < q.rows; ++i)
        out(i, j) = T(i == candidate ? 1 : 0);
      ++candidate;
      for (int pass = 0; pass < 2; ++pass)
        for (int64_t k = 0; k < std::max(j, q.columns); ++k) {
          if (k == j)
            continue;
          const Matrix<T> &from = k < j ? out : q;
          T inner(0);
          for (int64_t i = 0; i < q.rows; ++i)
            inner = inner + conjugate(from(i, k)) * out(i, j);
          for (int64_t i = 0; i < q.rows; ++i)
            out(i, j) = out(i, j) - inner * from(i, k);
        }
      double size = norm();
      for (int64_t i = 0; size > 0.01 && i < q.rows; ++i)
        out(i, j) = out(i, j) / T(size);
    }
  }
  return out;
}

// Of any square complex matrix: eigenvalues, and eigenvectors of norm 1 as columns. None if the
// steps do not converge.
std::optional<Eigen<Complex>> eigen_of(Matrix<Complex> a);

} // namespace spmd::runtime
