// Sums along rows or columns, and norms of singular values, which one-sided Jacobi rotations give.
#include "runtime/kernels/matrix_norm.h"

#include "runtime/kernels/lanes.h"

#include <algorithm>
#include <numeric>

namespace spmd::runtime {

namespace {

llvm::StringRef norm_word(const Site &site) { return rules::word_attr(site.app, {"ord", "p"}); }
bool spells(const Site &site, llvm::StringRef name) {
  return llvm::StringRef(site.spelling().data(), site.spelling().size()).contains(name);
}
bool is_nuclear(const Site &site) {
  return norm_word(site) == "nuc" || spells(site, "nuclear_norm");
}

// A matrix in rows, read out of a lane.
template <class T> struct Matrix {
  int64_t rows, columns;
  std::vector<T> cells;
  T &at(int64_t i, int64_t j) { return cells[static_cast<size_t>(i * columns + j)]; }
};

// Turns the columns of a until they are orthogonal; v takes part in each turn. Then a holds u s.
void turn_columns(Matrix<double> &a, Matrix<double> &v) {
  bool turned = true;
  for (int sweep = 0; turned && sweep < 60; ++sweep) {
    turned = false;
    for (int64_t p = 0; p < a.columns; ++p)
      for (int64_t q = p + 1; q < a.columns; ++q) {
        double pp = 0, qq = 0, pq = 0;
        for (int64_t i = 0; i < a.rows; ++i) {
          pp += a.at(i, p) * a.at(i, p);
          qq += a.at(i, q) * a.at(i, q);
          pq += a.at(i, p) * a.at(i, q);
        }
        if (std::abs(pq) <= 1e-16 * std::sqrt(pp * qq))
          continue;
        turned = true;
        double zeta = (qq - pp) / (2 * pq);
        double t = std::copysign(1.0, zeta) / (std::abs(zeta) + std::hypot(1.0, zeta));
        double c = 1 / std::hypot(1.0, t), s = c * t;
        auto turn = [&](Matrix<double> &m) {
          for (int64_t i = 0; i < m.rows; ++i) {
            double x = m.at(i, p), y = m.at(i, q);
            m.at(i, p) = c * x - s * y;
            m.at(i, q) = s * x + c * y;
          }
        };
        turn(a);
        turn(v);
      }
  }
}

// The sum (nuclear), the largest or the smallest of the singular values. Its derivative by the
// matrix is u v' of the values that count.
template <class T> T singular_norm(Matrix<T> &a, bool nuclear, double order) {
  Matrix<double> us{a.rows, a.columns, {}}, v{a.columns, a.columns, {}};
  for (const T &cell : a.cells)
    us.cells.push_back(plain(cell));
  v.cells.resize(static_cast<size_t>(a.columns * a.columns), 0.0);
  for (int64_t i = 0; i < a.columns; ++i)
    v.at(i, i) = 1;
  turn_columns(us, v);
  std::vector<double> sizes(static_cast<size_t>(a.columns), 0.0);
  for (int64_t j = 0; j < a.columns; ++j) {
    for (int64_t i = 0; i < a.rows; ++i)
      sizes[static_cast<size_t>(j)] = std::hypot(sizes[static_cast<size_t>(j)], us.at(i, j));
  }
  std::vector<int64_t> places(sizes.size());
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(), [&](int64_t p, int64_t q) {
    return sizes[static_cast<size_t>(p)] > sizes[static_cast<size_t>(q)];
  });
  places.resize(static_cast<size_t>(std::min(a.rows, a.columns)));
  if (!nuclear)
    places = {order > 0 ? places.front() : places.back()};
  T norm = 0.0;
  for (int64_t k : places) {
    double size = sizes[static_cast<size_t>(k)];
    norm += size;
    if constexpr (!std::is_same_v<T, double>)
      for (int64_t i = 0; size > 0 && i < a.rows; ++i)
        for (int64_t j = 0; j < a.columns; ++j)
          norm += (a.at(i, j) - plain(a.at(i, j))) * (us.at(i, k) / size * v.at(j, k));
  }
  return norm;
}

// The largest or smallest sum of magnitudes, of columns or of rows.
template <class T> T sum_norm(Matrix<T> &a, bool of_columns, bool largest) {
  T best = 0.0;
  for (int64_t p = 0, size = of_columns ? a.columns : a.rows; p < size; ++p) {
    T sum = 0.0;
    for (int64_t q = 0, other = of_columns ? a.rows : a.columns; q < other; ++q)
      sum += abs(of_columns ? a.at(q, p) : a.at(p, q));
    if (p == 0 || (largest ? sum > best : sum < best))
      best = sum;
  }
  return best;
}

template <class T> T norm_of(Matrix<T> &a, const Site &site) {
  double order = norm_order(site);
  if (is_nuclear(site) || std::abs(order) == 2)
    return singular_norm(a, is_nuclear(site), order);
  return sum_norm(a, !std::isinf(order), order > 0);
}

// The places of the rows and columns: torch takes `dim` in the order given.
std::pair<unsigned, unsigned> matrix_dims(const Site &site, unsigned rank) {
  std::optional<rules::Numbers> dims = rules::dim_numbers(site.app);
  if (!dims || dims->size() != 2)
    return {rank - 2, rank - 1};
  return {*rules::place_of((*dims)[0], rank), *rules::place_of((*dims)[1], rank)};
}

} // namespace

double norm_order(const Site &site) {
  llvm::StringRef word = norm_word(site);
  if (word == "inf" || word == "-inf")
    return word == "inf" ? kInfinity : -kInfinity;
  return site.number_attr("ord", site.number_attr("p", 2));
}

bool is_matrix_norm(const Site &site, unsigned rank) {
  if (rank < 2 || norm_word(site) == "fro" || spells(site, "frobenius"))
    return false;
  bool stated = rules::any_attr(site.app, {"ord", "p"});
  if (is_nuclear(site) || spells(site, "matrix_norm"))
    return stated || is_nuclear(site); // else Frobenius'
  std::optional<rules::Numbers> dims = rules::dim_numbers(site.app);
  return spells(site, "linalg_norm") && stated && (dims ? dims->size() == 2 : rank == 2);
}

template <class T> llvm::Error matrix_norm(const Call<T> &call) {
  View<const T> a = call.operand("a");
  auto [rows, columns] = matrix_dims(call.site, a.rank());
  double order = norm_order(call.site);
  if (!is_nuclear(call.site) && std::abs(order) != 1 && std::abs(order) != 2 && !std::isinf(order))
    return cannot_run(call.site, "matrices have no norm of that order");
  Lanes lanes(*a.dims, {rows, columns});
  Matrix<T> matrix{a.dim(rows), a.dim(columns), {}};
  for (int64_t lane = 0; lane < lanes.count(); ++lane) {
    matrix.cells.clear();
    for (int64_t i = 0; i < matrix.rows; ++i)
      for (int64_t j = 0; j < matrix.columns; ++j)
        matrix.cells.push_back(
            a[lanes.place(lane, rows < columns ? i * matrix.columns + j : j * matrix.rows + i)]);
    call.results[0][lane] = norm_of(matrix, call.site);
  }
  return llvm::Error::success();
}
template llvm::Error matrix_norm(const Call<double> &);
template llvm::Error matrix_norm(const Call<Var> &);

} // namespace spmd::runtime
