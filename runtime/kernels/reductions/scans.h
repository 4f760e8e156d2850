// Rows whose results run along a dimension: scans, differences, histograms; and the trace.
#pragma once

#include "runtime/kernels/kernel.h"

namespace spmd::runtime {

llvm::ArrayRef<KernelDef> scan_kernels(); // of the family of reductions

} // namespace spmd::runtime
