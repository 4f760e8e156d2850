// Rows that normalise with a mean and a deviation.
#pragma once

#include "runtime/kernels/kernel.h"

namespace spmd::runtime {

llvm::ArrayRef<KernelDef> norm_kernels(); // of the family of normalisation

} // namespace spmd::runtime
