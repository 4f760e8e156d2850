// Norms of matrices: of the two dimensions that attribute `dim` names, or of the two last ones.
#pragma once

#include "runtime/kernels/kernel.h"
#include "runtime/tensor/number.h"

namespace spmd::runtime {

// Attribute `ord` or `p` as a number, by default 2; `fro` is 2.
double norm_order(const KernelContext &context);
// Whether the op is a norm of matrices and not of vectors, for an operand of that rank.
bool is_matrix_norm(const KernelContext &context, unsigned rank);
template <class T> llvm::Error matrix_norm(const Call<T> &call);
extern template llvm::Error matrix_norm(const Call<double> &);
extern template llvm::Error matrix_norm(const Call<Var> &);

} // namespace spmd::runtime
