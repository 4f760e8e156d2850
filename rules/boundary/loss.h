// Loss roots (rules/README.md): invariant or partial on every axis.
#pragma once

#include "rules/violation.h"

#include "ir/program.h"

#include "llvm/ADT/SmallVector.h"

namespace spmd::rules {

// One violation per kind that is no loss root: R would count each gradient once per rank, V is no
// one loss.
llvm::SmallVector<Violation, 2> loss_violations(const ir::Program &program, ir::ValueId value,
                                                const ir::Type &type);

} // namespace spmd::rules
