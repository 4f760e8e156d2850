// Eigenvalues of general matrices: QR steps with shifts on a triangle in the making, then
// eigenvectors of the triangle by substitution.
#include "runtime/kernels/spectral.h"

namespace spmd::runtime {

namespace {

// The eigenvalue of the last 2 x 2 block that is nearer to its last element.
Complex shift_of(const Matrix<Complex> &h, int64_t last) {
  Complex a = h(last - 1, last - 1), b = h(last - 1, last), c = h(last, last - 1),
          d = h(last, last);
  Complex half = (a - d) * 0.5, root = std::sqrt(half * half + b * c);
  Complex near = d + half - root, far = d + half + root;
  return std::abs(near - d) < std::abs(far - d) ? near : far;
}

// Rows p and q of m from column `from` on become [[c, s], [-conj(s), c]] times them.
void rotate_rows(Matrix<Complex> &m, int64_t p, int64_t q, double c, Complex s, int64_t from) {
  for (int64_t j = from; j < m.columns; ++j) {
    Complex x = m(p, j), y = m(q, j);
    m(p, j) = c * x + s * y;
    m(q, j) = -std::conj(s) * x + c * y;
  }
}
void rotate_columns(Matrix<Complex> &m, int64_t p, int64_t q, double c, Complex s, int64_t to) {
  for (int64_t i = 0; i < to; ++i) {
    Complex x = m(i, p), y = m(i, q);
    m(i, p) = c * x + std::conj(s) * y;
    m(i, q) = -s * x + c * y;
  }
}

// Zeros below the first subdiagonal, by reflections from both sides.
void to_hessenberg(Matrix<Complex> &h, Matrix<Complex> &q) {
  for (int64_t k = 0; k + 2 < h.rows; ++k)
    for (int64_t i = h.rows - 1; i > k + 1; --i) {
      Complex x = h(i - 1, k), y = h(i, k);
      double size = std::hypot(std::abs(x), std::abs(y));
      if (std::abs(y) == 0)
        continue;
      double c = std::abs(x) / size;
      Complex phase = std::abs(x) == 0 ? Complex(1) : x / std::abs(x);
      Complex s = phase * std::conj(y) / size;
      rotate_rows(h, i - 1, i, c, s, 0);
      rotate_columns(h, i - 1, i, c, s, h.rows);
      rotate_columns(q, i - 1, i, c, s, q.rows);
    }
}

// One step on rows and columns [first, last].
void qr_step(Matrix<Complex> &h, Matrix<Complex> &q, int64_t first, int64_t last, Complex shift) {
  for (int64_t i = first; i <= last; ++i)
    h(i, i) -= shift;
  std::vector<std::pair<double, Complex>> turns;
  for (int64_t k = first; k < last; ++k) {
    Complex x = h(k, k), y = h(k + 1, k);
    double size = std::hypot(std::abs(x), std::abs(y));
    Complex phase = std::abs(x) == 0 ? Complex(1) : x / std::abs(x);
    double c = size == 0 ? 1 : std::abs(x) / size;
    Complex s = size == 0 ? Complex(0) : phase * std::conj(y) / size;
    rotate_rows(h, k, k + 1, c, s, k);
    turns.push_back({c, s});
  }
  for (int64_t k = first; k < last; ++k) {
    auto [c, s] = turns[static_cast<size_t>(k - first)];
    rotate_columns(h, k, k + 1, c, s, std::min(k + 2, last) + 1);
    rotate_columns(q, k, k + 1, c, s, q.rows);
  }
  for (int64_t i = first; i <= last; ++i)
    h(i, i) += shift;
}

} // namespace

std::optional<Eigen<Complex>> eigen_of(Matrix<Complex> h) {
  int64_t n = h.rows;
  Matrix<Complex> q = Matrix<Complex>::identity(n);
  to_hessenberg(h, q);
  int64_t last = n - 1;
  for (int steps = 0; last > 0;) {
    int64_t first = last;
    while (first > 0 && std::abs(h(first, first - 1)) >
                            1e-16 * (std::abs(h(first, first)) + std::abs(h(first - 1, first - 1))))
      --first;
    if (first > 0)
      h(first, first - 1) = 0;
    if (first == last) {
      --last, steps = 0;
      continue;
    }
    if (++steps > 300)
      return std::nullopt;
    // Every tenth step another shift, where the usual one goes round in circles.
    Complex shift =
        steps % 10 == 0 ? h(last, last) + std::abs(h(last, last - 1)) : shift_of(h, last);
    qr_step(h, q, first, last, shift);
  }
  Eigen<Complex> out{{}, Matrix<Complex>(n, n)};
  for (int64_t k = 0; k < n; ++k) {
    out.values.push_back(h(k, k));
    Matrix<Complex> x(n, 1);
    x(k, 0) = 1;
    for (int64_t i = k - 1; i >= 0; --i) {
      Complex sum = 0;
      for (int64_t j = i + 1; j <= k; ++j)
        sum += h(i, j) * x(j, 0);
      Complex apart = h(k, k) - h(i, i);
      double least = 1e-16 * (std::abs(h(k, k)) + 1e-292);
      x(i, 0) = sum / (std::abs(apart) < least ? Complex(least) : apart);
    }
    Matrix<Complex> vector = q * x;
    double size = 0;
    for (int64_t i = 0; i < n; ++i)
      size += std::norm(vector(i, 0));
    for (int64_t i = 0; i < n; ++i)
      out.vectors(i, k) = vector(i, 0) / std::sqrt(size);
  }
  return out;
}

} // namespace spmd::runtime
