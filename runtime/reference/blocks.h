// Moving rectangular parts of tensors, and combining equal ones element by element. What the
// meaning of values is made of; it knows no mesh.
#pragma once

#include "runtime/tensor/tensor.h"

#include "ir/kind.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace spmd::runtime {

// Copies a part of these extents, from one place to another. Both tensors have the same form of
// cells.
void copy_block(const Tensor &from, llvm::ArrayRef<int64_t> from_first, Tensor &to,
                llvm::ArrayRef<int64_t> to_first, llvm::ArrayRef<int64_t> extents);
// Zeros of the form and dtype of `like`.
Tensor zeros_like(const Tensor &like, Dims dims);
// The part of these extents that begins there.
Tensor block_of(const Tensor &from, llvm::ArrayRef<int64_t> first, Dims extents);
// The part [first, first + extent) of one dimension.
Tensor slice_of(const Tensor &from, unsigned dim, int64_t first, int64_t extent);
// One after the other along a dimension; there is at least one.
Tensor concatenated(llvm::ArrayRef<Tensor> parts, unsigned dim);
// On a new dimension.
Tensor stacked(llvm::ArrayRef<Tensor> parts, unsigned dim);
// Without a dimension, at one place of it.
Tensor taken(const Tensor &from, unsigned dim, int64_t at);

// Element by element, into `to`; both have the same extents. An average is a sum here. Reals are
// joined in double, without rounding; residues by their representatives where the combiner compares
// or works on bits.
void combine_into(Tensor &to, const Tensor &more, ir::Combiner combiner);
// Multiplies all elements by a fraction. Integers that a division would leave are no matter of
// ours.
void multiply(Tensor &tensor, int64_t numerator, int64_t denominator);
// All elements in row-major order; none if one of them is no integer.
std::optional<llvm::SmallVector<int64_t, 8>> whole_numbers(const Tensor &tensor);
// Absolute values; residues have none.
Tensor magnitudes(const Tensor &tensor);

// `f` for each place of a tensor of these extents, in row-major order.
void for_each_position(llvm::ArrayRef<int64_t> extents,
                       llvm::function_ref<void(llvm::ArrayRef<int64_t>)> f);

} // namespace spmd::runtime
