// Rows that normalise with a mean and a deviation.
#pragma once

#include "runtime/kernels/kernel.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace spmd::runtime {

llvm::ArrayRef<KernelDef> norm_kernels(); // of the family of normalisation

// Of layer and RMS norms: how many trailing dimensions share statistics, from an attribute or the
// rank of the weight or the bias (none: there is no such operand); and what is added to the
// variance.
unsigned norm_spans(const KernelContext &context,
                    llvm::function_ref<std::optional<unsigned>(std::string_view)> rank_of);
double norm_eps(const KernelContext &context, bool centred);

} // namespace spmd::runtime
