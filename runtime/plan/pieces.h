// The extents of pieces that a transition cuts or joins.
#pragma once

#include "runtime/tensor/tensor.h"

#include "rules/transitions/call.h"

namespace spmd::runtime {

// Elements of a tensor per entry of the dimensions from `dim` on.
int64_t before(const Dims &dims, size_t dim);
int64_t total(llvm::ArrayRef<int64_t> lengths);
bool all_equal(llvm::ArrayRef<int64_t> lengths);
// The extents of one piece of a tensor of these extents.
Dims piece_dims(Dims dims, const rules::TransitionMove &move, int64_t length);
// The extents of all pieces joined, one piece as given.
Dims joined_dims(Dims dims, const rules::TransitionMove &move, int64_t length);
bool joins(const rules::TransitionMove &move);

} // namespace spmd::runtime
