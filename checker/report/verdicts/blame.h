// What a finding is about, by the fields of its violation: operands, and the parameter whose
// gradient would be wrong.
#pragma once

#include "checker/finding.h"

#include "ir/program.h"

#include "llvm/ADT/SmallVector.h"

namespace spmd::checker {

// The operands that a finding names, in the order of its fields; one that it says to be wrong
// first.
llvm::SmallVector<uint32_t, 2> operands_named(const rules::Violation &violation);

// The declared value whose gradient would be wrong; none if the finding names none.
ir::ValueId blamed_parameter(const ir::Program &program, const Finding &finding);

} // namespace spmd::checker
