// Products of row-major matrices: OpenBLAS on one thread for the element types that it has, own
// loops for all others.
#pragma once

#include "runtime/tensor/tensor.h"

namespace spmd::runtime {

// OPENBLAS_CORETYPE for a processor that OpenBLAS does not know, and so takes for one of twenty
// years ago; null: it chose by itself, or this is no such processor.
const char *openblas_core_override();

// A matrix as it is read: `stride` elements from one stored row to the next. Transposed: the stored
// rows are the columns.
template <class T> struct MatrixView {
  const T *data = nullptr;
  int64_t stride = 0;
  bool transposed = false;

  const T &at(int64_t row, int64_t column) const {
    return transposed ? data[column * stride + row] : data[row * stride + column];
  }
};

// c = alpha a b + beta c: a is m x k, b is k x n, c is m x n and stored by rows, `stride` apart.
// With beta = 0 what is in c is not read.
template <class T>
void gemm(int64_t m, int64_t n, int64_t k, T alpha, MatrixView<T> a, MatrixView<T> b, T beta, T *c,
          int64_t stride) {
  for (int64_t i = 0; i < m; ++i) {
    T *row = c + i * stride;
    for (int64_t j = 0; j < n; ++j)
      row[j] = beta == T(0) ? T(0) : beta * row[j];
    for (int64_t x = 0; x < k; ++x) {
      T left = alpha * a.at(i, x);
      for (int64_t j = 0; j < n; ++j)
        row[j] = row[j] + left * b.at(x, j);
    }
  }
}
template <>
void gemm(int64_t m, int64_t n, int64_t k, double alpha, MatrixView<double> a, MatrixView<double> b,
          double beta, double *c, int64_t stride);
template <>
void gemm(int64_t m, int64_t n, int64_t k, float alpha, MatrixView<float> a, MatrixView<float> b,
          float beta, float *c, int64_t stride);
template <>
void gemm(int64_t m, int64_t n, int64_t k, Complex alpha, MatrixView<Complex> a,
          MatrixView<Complex> b, Complex beta, Complex *c, int64_t stride);

// c = a b of dense matrices.
template <class T> void multiply(int64_t m, int64_t n, int64_t k, const T *a, const T *b, T *c) {
  gemm<T>(m, n, k, T(1), {a, k}, {b, n}, T(0), c, n);
}

} // namespace spmd::runtime
