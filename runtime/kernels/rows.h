// The kernels, family by family as the op table has them: a kernel is one row of one of these
// tables.
#pragma once

#include "runtime/kernels/kernel.h"

namespace spmd::runtime {

llvm::ArrayRef<KernelDef> pointwise_kernels();
llvm::ArrayRef<KernelDef> gradient_kernels(); // rows that are the backward of another row
llvm::ArrayRef<KernelDef> reduction_kernels();
llvm::ArrayRef<KernelDef> normalisation_kernels();
llvm::ArrayRef<KernelDef> loss_kernels();
llvm::ArrayRef<KernelDef> layout_kernels();
llvm::ArrayRef<KernelDef> indexing_kernels();
llvm::ArrayRef<KernelDef> scattering_kernels();
llvm::ArrayRef<KernelDef> embedding_kernels(); // bags, gradients of tables
llvm::ArrayRef<KernelDef> sorting_kernels();
llvm::ArrayRef<KernelDef> contraction_kernels();
llvm::ArrayRef<KernelDef> convolution_kernels();
llvm::ArrayRef<KernelDef> pooling_kernels();
llvm::ArrayRef<KernelDef> attention_kernels();
llvm::ArrayRef<KernelDef> linalg_kernels();
llvm::ArrayRef<KernelDef> creation_kernels();
llvm::ArrayRef<KernelDef> random_kernels();
llvm::ArrayRef<KernelDef> optimizer_kernels();

} // namespace spmd::runtime
