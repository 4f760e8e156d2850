// A hash of what a tensor holds, bit by bit: equal tensors have equal ones, whichever process has
// them.
#pragma once

#include "runtime/tensor/tensor.h"

namespace spmd::runtime {

// Of the extents and all cells; zeros of either sign, and NaNs, are distinguished.
uint64_t bits_hash(const Tensor &tensor);

} // namespace spmd::runtime
