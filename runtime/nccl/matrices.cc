// Matrices of cuBLASLt are column after column. One whose rows run on is the transpose of such a
// one; a product whose rows run on is b^T a^T. Sums are in float, or in double for doubles, and in
// an order that is the same in each run: no algorithm that adds in place, and none that rounds
// between.
#include "runtime/nccl/matrices.h"

#include "runtime/nccl/device.h"

#include <algorithm>
#include <climits>
#include <optional>
#include <utility>

namespace spmd::nccl {
namespace {

std::optional<cudaDataType_t> type_of(uint32_t element) {
  switch (element) {
  case kSpmdF8E4M3:
    return CUDA_R_8F_E4M3;
  case kSpmdBF16:
    return CUDA_R_16BF;
  case kSpmdF16:
    return CUDA_R_16F;
  case kSpmdF32:
    return CUDA_R_32F;
  case kSpmdF64:
    return CUDA_R_64F;
  default:
    return std::nullopt; // the library has no product of F8E5M2 by itself
  }
}

// What the library can be asked for. Whether it has it on this device is for the library to say.
bool is_known(uint32_t element, uint32_t out) {
  switch (element) {
  case kSpmdF8E4M3:
    return out == kSpmdBF16 || out == kSpmdF16 || out == kSpmdF32;
  case kSpmdBF16:
  case kSpmdF16:
    return out == element || out == kSpmdF32;
  default:
    return out == element && type_of(element);
  }
}

struct Operand {
  SpmdAddress data = 0;
  bool transposed = false;
  int64_t rows = 0, columns = 0, ahead = 0, batch = 0; // as stored; `ahead` from column to column
};

// A matrix of `rows` x `columns`, column after column or row after row. Where there is but one row
// or column, its stride says nothing.
std::optional<Operand> stored(SpmdAddress data, int64_t rows, int64_t columns, int64_t row_stride,
                              int64_t column_stride, int64_t batch) {
  if ((rows == 1 || row_stride == 1) && (columns == 1 || column_stride >= rows))
    return Operand{data, false, rows, columns, columns == 1 ? rows : column_stride, batch};
  if ((columns == 1 || column_stride == 1) && (rows == 1 || row_stride >= columns))
    return Operand{data, true, columns, rows, rows == 1 ? columns : row_stride, batch};
  return std::nullopt;
}

// The power of two that an address is a multiple of, as far as algorithms ask.
int64_t alignment_of(SpmdAddress address) {
  return static_cast<int64_t>(std::min<uint64_t>(address & (~address + 1), 256));
}

enum Numbers : size_t { // of a Form
  kElement,
  kOut,
  kRows,
  kColumns,
  kInner,
  kBatch,
  kTransposedA,
  kTransposedB,
  kAheadA,
  kAheadB,
  kAheadOut,
  kBatchA,
  kBatchB,
  kBatchOut,
  kAlignedA,
  kAlignedB,
  kAlignedOut
};

struct Roles {
  Operand a, b, out;
};

// The product in the library's terms; none where the strides are not of its kind.
std::optional<Roles> roles_of(const SpmdMatrices &m) {
  auto a = stored(m.a, m.rows, m.inner, m.a_row, m.a_inner, m.a_batch);
  auto b = stored(m.b, m.inner, m.columns, m.b_inner, m.b_column, m.b_batch);
  auto out = stored(m.out, m.rows, m.columns, m.out_row, m.out_column, m.out_batch);
  if (!a || !b || !out)
    return std::nullopt;
  if (out->transposed) {
    std::swap(a, b);
    a->transposed = !a->transposed;
    b->transposed = !b->transposed;
  }
  // Eight bits are taken with the contracted dimension running on in both, in sixteens.
  if (m.element == kSpmdF8E4M3) {
    if (!a->transposed || b->transposed)
      return std::nullopt;
    for (int64_t number : {m.rows, m.columns, m.inner, a->ahead, b->ahead, out->ahead, a->batch,
                           b->batch, out->batch})
      if (number % 16)
        return std::nullopt;
  }
  return Roles{*a, *b, *out};
}

SpmdStatus make_layout(cublasLtMatrixLayout_t &layout, uint32_t element, int64_t rows,
                       int64_t columns, int64_t ahead, int64_t batches, int64_t batch) {
  if (SpmdStatus status = checked(cublasLtMatrixLayoutCreate(&layout, *type_of(element),
                                                             static_cast<uint64_t>(rows),
                                                             static_cast<uint64_t>(columns), ahead),
                                  "cublasLtMatrixLayoutCreate");
      status.code != kSpmdOk)
    return status;
  const auto count = static_cast<int32_t>(batches);
  cublasStatus_t error = cublasLtMatrixLayoutSetAttribute(
      layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
  error = error ? error
                : cublasLtMatrixLayoutSetAttribute(
                      layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch, sizeof batch);
  return checked(error, "cublasLtMatrixLayoutSetAttribute");
}

template <class Value>
cublasStatus_t prefer(cublasLtMatmulPreference_t preference,
                      cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
  return cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
}

SpmdStatus set_preference(cublasLtMatmulPreference_t preference, uint64_t workspace,
                          uint32_t aligned_a, uint32_t aligned_b, uint32_t aligned_out) {
  cublasStatus_t error = prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
  error = error ? error
                : prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                         static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  error = error ? error : prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned_a);
  error = error ? error : prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned_b);
  error =
      error ? error : prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned_out);
  error =
      error ? error : prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned_out);
  return checked(error, "cublasLtMatmulPreferenceSetAttribute");
}

} // namespace

SpmdStatus Matrices::open() {
  if (SpmdStatus status = checked(cublasLtCreate(&library_), "cublasLtCreate");
      status.code != kSpmdOk)
    return status;
  return checked(cudaMalloc(&workspace_, kWorkspaceBytes), "cudaMalloc");
}

SpmdStatus Matrices::close() {
  for (auto &[form, made] : products_) {
    cublasLtMatmulDescDestroy(made.product);
    cublasLtMatrixLayoutDestroy(made.a);
    cublasLtMatrixLayoutDestroy(made.b);
    cublasLtMatrixLayoutDestroy(made.out);
  }
  products_.clear();
  if (library_)
    cublasLtDestroy(std::exchange(library_, nullptr));
  return checked(cudaFree(std::exchange(workspace_, nullptr)), "cudaFree");
}

SpmdStatus Matrices::choose(const Form &form, Product &made) {
  const auto element = static_cast<uint32_t>(form[kElement]);
  const auto out_element = static_cast<uint32_t>(form[kOut]);
  const bool is_double = element == kSpmdF64;
  if (SpmdStatus status =
          checked(cublasLtMatmulDescCreate(&made.product,
                                           is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                           is_double ? CUDA_R_64F : CUDA_R_32F),
                  "cublasLtMatmulDescCreate");
      status.code != kSpmdOk)
    return status;
  const cublasOperation_t op_a = form[kTransposedA] ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t op_b = form[kTransposedB] ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasStatus_t error =
      cublasLtMatmulDescSetAttribute(made.product, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a);
  error = error ? error
                : cublasLtMatmulDescSetAttribute(made.product, CUBLASLT_MATMUL_DESC_TRANSB, &op_b,
                                                 sizeof op_b);
  if (error != CUBLAS_STATUS_SUCCESS)
    return checked(error, "cublasLtMatmulDescSetAttribute");
  const int64_t m = form[kRows], n = form[kColumns], k = form[kInner], batches = form[kBatch];
  const bool ta = form[kTransposedA], tb = form[kTransposedB];
  SpmdStatus status =
      make_layout(made.a, element, ta ? k : m, ta ? m : k, form[kAheadA], batches, form[kBatchA]);
  if (status.code == kSpmdOk)
    status =
        make_layout(made.b, element, tb ? n : k, tb ? k : n, form[kAheadB], batches, form[kBatchB]);
  if (status.code == kSpmdOk)
    status = make_layout(made.out, out_element, m, n, form[kAheadOut], batches, form[kBatchOut]);
  cublasLtMatmulPreference_t preference = nullptr;
  if (status.code == kSpmdOk)
    status = checked(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  if (status.code != kSpmdOk)
    return status;
  status = set_preference(preference, kWorkspaceBytes, static_cast<uint32_t>(form[kAlignedA]),
                          static_cast<uint32_t>(form[kAlignedB]),
                          static_cast<uint32_t>(form[kAlignedOut]));
  if (status.code == kSpmdOk) {
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    error = cublasLtMatmulAlgoGetHeuristic(library_, made.product, made.a, made.b, made.out,
                                           made.out, preference, 1, &found, &count);
    made.exists = error == CUBLAS_STATUS_SUCCESS && count > 0 &&
                  found.state == CUBLAS_STATUS_SUCCESS && found.workspaceSize <= kWorkspaceBytes;
    made.algorithm = found.algo;
    if (error != CUBLAS_STATUS_NOT_SUPPORTED && error != CUBLAS_STATUS_INVALID_VALUE)
      status = checked(error, "cublasLtMatmulAlgoGetHeuristic");
  }
  cublasLtMatmulPreferenceDestroy(preference);
  return status;
}

SpmdStatus Matrices::queue(const SpmdMatrices &m, cudaStream_t stream, bool &taken) {
  taken = false;
  if (!is_known(m.element, m.out_element) || m.batch < 1 || m.batch > INT_MAX || m.rows < 1 ||
      m.columns < 1 || m.inner < 1)
    return status_of(kSpmdOk);
  const std::optional<Roles> roles = roles_of(m);
  if (!roles)
    return status_of(kSpmdOk);
  const auto &[a, b, out] = *roles;
  Form form{};
  form[kElement] = m.element;
  form[kOut] = m.out_element;
  form[kRows] = out.rows;
  form[kColumns] = out.columns;
  form[kInner] = m.inner;
  form[kBatch] = m.batch;
  form[kTransposedA] = a.transposed;
  form[kTransposedB] = b.transposed;
  form[kAheadA] = a.ahead;
  form[kAheadB] = b.ahead;
  form[kAheadOut] = out.ahead;
  form[kBatchA] = a.batch;
  form[kBatchB] = b.batch;
  form[kBatchOut] = out.batch;
  form[kAlignedA] = alignment_of(a.data);
  form[kAlignedB] = alignment_of(b.data);
  form[kAlignedOut] = alignment_of(out.data);
  auto [at, fresh] = products_.try_emplace(form);
  Product &made = at->second;
  if (fresh)
    if (SpmdStatus status = choose(form, made); status.code != kSpmdOk)
      return status;
  if (!made.exists)
    return status_of(kSpmdOk);
  const double factor = m.factor, kept = m.adds ? 1 : 0;
  const auto narrow_factor = static_cast<float>(factor), narrow_kept = static_cast<float>(kept);
  const bool is_double = m.element == kSpmdF64;
  const void *alpha = is_double ? static_cast<const void *>(&factor) : &narrow_factor;
  const void *beta = is_double ? static_cast<const void *>(&kept) : &narrow_kept;
  auto *result = reinterpret_cast<void *>(out.data);
  taken = true;
  return checked(
      cublasLtMatmul(library_, made.product, alpha, reinterpret_cast<const void *>(a.data), made.a,
                     reinterpret_cast<const void *>(b.data), made.b, beta, result, made.out, result,
                     made.out, &made.algorithm, workspace_, kWorkspaceBytes, stream),
      "cublasLtMatmul");
}

} // namespace spmd::nccl
