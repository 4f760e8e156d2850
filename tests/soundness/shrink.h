// The smallest draft found that still fails in the same way.
#pragma once

#include "tests/soundness/draft.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace spmd::soundness {

// `fails` is asked of many drafts; it must be true of the first. Statements go, with what uses them
// or with their uses led to an operand; what a statement computes becomes an input; attributes go.
Draft shrink(Draft draft, llvm::function_ref<bool(const Draft &)> fails);

} // namespace spmd::soundness
