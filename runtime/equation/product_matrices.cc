// Products of matrices whose sides are several variables each: in place where BLAS can read them,
// else packed.
#include "runtime/equation/product.h"
#include "runtime/loops/blas.h"
#include "runtime/loops/dot.h"
#include "runtime/tensor/precision.h"
#include "runtime/tensor/scratch.h"

#include <optional>

namespace spmd::runtime {

namespace {

// Visits the positions of several variables in order, the last one innermost.
template <class Visit>
void each_position(llvm::ArrayRef<int64_t> extents, llvm::ArrayRef<int64_t> strides, Visit visit) {
  Strides place(extents.size(), 0);
  int64_t offset = 0;
  while (true) {
    visit(offset);
    size_t l = extents.size();
    for (; l-- > 0;) {
      offset += strides[l];
      if (++place[l] < extents[l])
        break;
      offset -= strides[l] * extents[l];
      place[l] = 0;
    }
    if (l == size_t(-1))
      return;
  }
}

// The one stride of several variables, if they run through as one dimension does.
bool as_one(llvm::ArrayRef<int64_t> extents, llvm::ArrayRef<int64_t> strides, int64_t &stride) {
  stride = strides.empty() ? 1 : strides.back();
  for (size_t i = 1; i < extents.size(); ++i)
    if (strides[i - 1] != strides[i] * extents[i])
      return false;
  return true;
}

// A matrix of rows x columns whose sides are several variables each.
struct Operand {
  llvm::ArrayRef<int64_t> row_extents, row_strides, column_extents, column_strides;
  int64_t rows, columns;
};

// A matrix in place, if BLAS can read it there.
template <class T> std::optional<MatrixView<T>> in_place(const Operand &operand, const T *data) {
  int64_t row = 0, column = 0;
  if (!as_one(operand.row_extents, operand.row_strides, row) ||
      !as_one(operand.column_extents, operand.column_strides, column))
    return std::nullopt;
  if (column == 1 && (row >= operand.columns || operand.rows == 1))
    return MatrixView<T>{data, std::max(row, operand.columns), false};
  if (row == 1 && (column >= operand.rows || operand.columns == 1))
    return MatrixView<T>{data, std::max(column, operand.rows), true};
  return std::nullopt;
}

template <class D, class T> void copy_cells(const T *from, int64_t step, int64_t n, D *to) {
  if constexpr (std::is_same_v<T, double> && std::is_same_v<D, float>) {
    if (step == 1)
      return to_floats(from, to, static_cast<size_t>(n));
  } else if (step == 1) {
    std::copy_n(from, n, to);
    return;
  }
  for (int64_t k = 0; k < n; ++k)
    to[k] = static_cast<D>(from[k * step]);
}

// As BLAS wants it: in place where it can be, else copied (and converted).
template <class D, class T>
MatrixView<D> matrix(const Operand &operand, const T *data, std::vector<D> &room) {
  if constexpr (std::is_same_v<D, T>)
    if (std::optional<MatrixView<T>> view = in_place(operand, data))
      return *view;
  room.resize(static_cast<size_t>(operand.rows * operand.columns));
  D *to = room.data();
  int64_t row = operand.row_strides.empty() ? 0 : operand.row_strides.back();
  int64_t column = operand.column_strides.empty() ? 0 : operand.column_strides.back();
  // Stored so that it is read with the smaller steps innermost.
  bool transposed = operand.rows > 1 && (operand.columns == 1 || row < column);
  auto copy = [&](llvm::ArrayRef<int64_t> outer_extents, llvm::ArrayRef<int64_t> outer_strides,
                  llvm::ArrayRef<int64_t> inner_extents, llvm::ArrayRef<int64_t> inner_strides) {
    each_position(outer_extents, outer_strides, [&](int64_t outer) {
      each_position(inner_extents.drop_back(!inner_extents.empty()),
                    inner_strides.drop_back(!inner_strides.empty()), [&](int64_t offset) {
                      const T *from = data + outer + offset;
                      int64_t n = inner_extents.empty() ? 1 : inner_extents.back();
                      copy_cells(from, inner_strides.empty() ? 0 : inner_strides.back(), n, to);
                      to += n;
                    });
    });
  };
  if (transposed)
    copy(operand.column_extents, operand.column_strides, operand.row_extents, operand.row_strides);
  else
    copy(operand.row_extents, operand.row_strides, operand.column_extents, operand.column_strides);
  return {room.data(), transposed ? operand.rows : operand.columns, transposed};
}

// c += alpha a b, where c is dense; fresh: c = alpha a b.
template <class T>
void own_gemm(int64_t m, int64_t n, int64_t k, T alpha, MatrixView<T> a, MatrixView<T> b, T *c,
              bool fresh) {
  auto by_rows = [](MatrixView<T> from, int64_t rows, int64_t columns, bool transposed,
                    std::vector<T> &room) {
    if (from.transposed == transposed && from.stride == (transposed ? rows : columns))
      return from.data;
    room.resize(static_cast<size_t>(rows * columns));
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        room[static_cast<size_t>(transposed ? j * rows + i : i * columns + j)] = from.at(i, j);
    return static_cast<const T *>(room.data());
  };
  Scratch<T> left, right;
  const T *x = by_rows(a, m, k, false, left.cells), *y = by_rows(b, k, n, true, right.cells);
  constexpr int64_t kBlock = 32; // rows of y that stay near
  for (int64_t first = 0; first < n; first += kBlock)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = first; j < std::min(first + kBlock, n); ++j)
        c[i * n + j] = (fresh ? T(0) : c[i * n + j]) + alpha * dot(x + i * k, y + j * k, k);
}

template <class T> constexpr bool kHasBlas = !std::is_same_v<T, Residue>;

template <class T>
void multiply_into(const Operand &a, const T *left, const Operand &b, const T *right, T scale,
                   T *dense, bool fresh) {
  Scratch<T> a_room, b_room;
  MatrixView<T> x = matrix<T, T>(a, left, a_room.cells), y = matrix<T, T>(b, right, b_room.cells);
  int64_t m = a.rows, n = b.columns, k = a.columns;
  if constexpr (kHasBlas<T>)
    if (uses_blas())
      return gemm<T>(m, n, k, scale, x, y, fresh ? T(0) : T(1), dense, n);
  own_gemm<T>(m, n, k, scale, x, y, dense, fresh);
}

// One side of a product in float. `kept`: the array in which the matrix lies, from `first` on.
MatrixView<float> single(const Operand &operand, const double *first, const double *data,
                         F32Source kept, std::vector<float> &room) {
  if (kept.kept)
    if (std::optional<MatrixView<double>> view = in_place(operand, data))
      return {kept.kept->of(first, kept.size) + (data - first), view->stride, view->transposed};
  return matrix<float, double>(operand, data, room);
}

// The product of two matrices of floats, as doubles.
void multiply_single(const MatrixView<float> &x, const MatrixView<float> &y, int64_t m, int64_t n,
                     int64_t k, double scale, double *dense, bool fresh) {
  auto size = static_cast<size_t>(m * n);
  Scratch<float> result;
  if (result.cells.size() < size)
    result.cells.resize(size);
  gemm<float>(m, n, k, 1, x, y, 0, result.cells.data(), n);
  if (fresh)
    return to_doubles(result.cells.data(), scale, dense, size);
  for (size_t i = 0; i < size; ++i)
    dense[i] += scale * static_cast<double>(result.cells[i]);
}

} // namespace

bool Product::is_direct(const Matrices &matrices) {
  const Side &rows = matrices.rows, &columns = matrices.columns;
  int64_t row = 0, column = 0;
  return as_one(rows.extents, rows.output, row) &&
         as_one(columns.extents, columns.output, column) && (columns.size == 1 || column == 1) &&
         (rows.size == 1 || row == columns.size) && (columns.size > 1 || row == 1);
}

template <class T>
bool Product::run_matrices(const Matrices &matrices, llvm::ArrayRef<const T *> inputs, T scale,
                           T *output, bool fresh, bool in_single, llvm::ArrayRef<F32Source> kept) {
  const T *a = inputs[0], *b = inputs[1];
  const Side &rows = matrices.rows, &columns = matrices.columns, &inner = matrices.inner;
  Operand left{rows.extents, rows.a, inner.extents, inner.a, rows.size, inner.size};
  Operand right{inner.extents, inner.b, columns.extents, columns.b, inner.size, columns.size};
  const bool direct = is_direct(matrices);
  bool floats = fresh && direct && (scale == T(1) || scale == T(-1));
  Scratch<T> room;
  if (!direct)
    room.cells.resize(static_cast<size_t>(rows.size * columns.size));
  const Side &batch = matrices.batch;
  Strides place(batch.extents.size(), 0);
  while (true) {
    T *dense = direct ? output : room.cells.data();
    bool assigns = fresh || !direct;
    bool done = false;
    if constexpr (std::is_same_v<T, double>)
      if ((done = in_single && uses_blas())) {
        Scratch<float> left_room, right_room;
        multiply_single(single(left, inputs[0], a, kept[0], left_room.cells),
                        single(right, inputs[1], b, kept[1], right_room.cells), rows.size,
                        columns.size, inner.size, scale, dense, assigns);
      }
    floats &= done;
    if (!done)
      multiply_into<T>(left, a, right, b, scale, dense, assigns);
    if (!direct) {
      const T *from = dense;
      each_position(rows.extents, rows.output, [&](int64_t i) {
        each_position(columns.extents, columns.output,
                      [&](int64_t j) { output[i + j] += *from++; });
      });
    }
    size_t l = batch.extents.size();
    for (; l-- > 0;) {
      bool more = ++place[l] < batch.extents[l];
      int64_t steps = more ? 1 : 1 - batch.extents[l];
      a += steps * batch.a[l], b += steps * batch.b[l], output += steps * batch.output[l];
      if (more)
        break;
      place[l] = 0;
    }
    if (l == size_t(-1))
      return floats;
  }
}

template bool Product::run_matrices(const Matrices &, llvm::ArrayRef<const double *>, double,
                                    double *, bool, bool, llvm::ArrayRef<F32Source>);
template bool Product::run_matrices(const Matrices &, llvm::ArrayRef<const Complex *>, Complex,
                                    Complex *, bool, bool, llvm::ArrayRef<F32Source>);
template bool Product::run_matrices(const Matrices &, llvm::ArrayRef<const Residue *>, Residue,
                                    Residue *, bool, bool, llvm::ArrayRef<F32Source>);

} // namespace spmd::runtime
