// What a spelling means: a row, a transition or a boundary op.
#pragma once

#include "rules/application.h"
#include "rules/ops/table.h"

#include "llvm/ADT/StringRef.h"

namespace spmd::rules {

// Resolution order: rules/README.md, "Names".
ResolvedOp resolve_spelling(llvm::StringRef spelling, llvm::StringRef dialect);
// The same of an op of a program, in its dialect. Looked up anew each time, and without rules of
// the trace: where many are asked, Rules remembers.
ResolvedOp resolve_op(const ir::Program &program, ir::OpNameId op);

} // namespace spmd::rules
