// What rows make of plain integers, such as the place of a rank and the number of a turn.
#pragma once

#include "rules/ops/op.h"

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>
#include <optional>

namespace spmd::checker {

// Of operands in the order of the row; booleans are 0 and 1. None: the row is no function of
// integers that is known here, or has no value there.
std::optional<int64_t> of_integers(const rules::OpDef &row, llvm::ArrayRef<int64_t> operands);

} // namespace spmd::checker
