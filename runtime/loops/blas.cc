// Products by OpenBLAS.
#include "runtime/loops/blas.h"

#include "ir/support/check.h"

#include "llvm/ADT/StringRef.h"

#include <cblas.h>
#include <limits>

namespace spmd::runtime {

namespace {

// Threads belong to whoever runs the ranks: a sum is never split.
void one_thread() {
  static const bool set = (openblas_set_num_threads(1), true);
  (void)set;
}

blasint extent(int64_t number) {
  SPMD_CHECK(number >= 0 && number <= std::numeric_limits<blasint>::max(),
             "a matrix has more rows than BLAS can count");
  return static_cast<blasint>(number);
}

// BLAS wants a positive stride of a matrix without elements too.
blasint stride_of(int64_t stride) { return extent(std::max<int64_t>(stride, 1)); }

CBLAS_TRANSPOSE form(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

// Strides as BLAS asks for: not below the length of a stored row.
template <class T> MatrixView<T> readable(MatrixView<T> a, int64_t rows, int64_t columns) {
  a.stride = std::max(a.stride, a.transposed ? rows : columns);
  return a;
}

} // namespace

const char *openblas_core_override() {
#if defined(__x86_64__)
  // What it takes a processor for that it does not know.
  if (llvm::StringRef(openblas_get_corename()) != "Prescott")
    return nullptr;
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return "Haswell";
#endif
  return nullptr;
}

template <>
void gemm(int64_t m, int64_t n, int64_t k, double alpha, MatrixView<double> a, MatrixView<double> b,
          double beta, double *c, int64_t stride) {
  one_thread();
  a = readable(a, m, k), b = readable(b, k, n);
  cblas_dgemm(CblasRowMajor, form(a.transposed), form(b.transposed), extent(m), extent(n),
              extent(k), alpha, a.data, stride_of(a.stride), b.data, stride_of(b.stride), beta, c,
              stride_of(std::max(stride, n)));
}

template <>
void gemm(int64_t m, int64_t n, int64_t k, float alpha, MatrixView<float> a, MatrixView<float> b,
          float beta, float *c, int64_t stride) {
  one_thread();
  a = readable(a, m, k), b = readable(b, k, n);
  cblas_sgemm(CblasRowMajor, form(a.transposed), form(b.transposed), extent(m), extent(n),
              extent(k), alpha, a.data, stride_of(a.stride), b.data, stride_of(b.stride), beta, c,
              stride_of(std::max(stride, n)));
}

template <>
void gemm(int64_t m, int64_t n, int64_t k, Complex alpha, MatrixView<Complex> a,
          MatrixView<Complex> b, Complex beta, Complex *c, int64_t stride) {
  one_thread();
  a = readable(a, m, k), b = readable(b, k, n);
  cblas_zgemm(CblasRowMajor, form(a.transposed), form(b.transposed), extent(m), extent(n),
              extent(k), &alpha, a.data, stride_of(a.stride), b.data, stride_of(b.stride), &beta, c,
              stride_of(std::max(stride, n)));
}

} // namespace spmd::runtime
