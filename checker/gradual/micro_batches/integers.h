// Values of ops for known integers, such as the position of a rank and the number of a turn.
#pragma once

#include "rules/application.h"

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>
#include <optional>

namespace spmd::checker {

// The value of the op for these operands, in the order of its row; Booleans are 0 and 1. Of masks
// only, where it works bit by bit. None: it has no value there, or is none of the functions that
// programs choose ranks and turns by.
std::optional<int64_t> of_integers(const rules::ResolvedOp &op, llvm::ArrayRef<int64_t> operands);

} // namespace spmd::checker
