// Gradients of rows that have a kernel; those of rows whose equation is the value follow from it.
#pragma once

#include "runtime/kernels/kernel.h"

namespace spmd::runtime {

// Fills `vjp.result`, which is zero on entry. An error: the row has no derivative by the operand,
// or none that we know.
llvm::Error run_vjp(const KernelDef &kernel, const VjpCall &vjp);

// That of a kernel on numbers that remember, for kernels whose own `vjp` serves some operands only.
llvm::Error run_taped_vjp(llvm::Error (*taped)(const Call<Var> &), const VjpCall &vjp);

} // namespace spmd::runtime
