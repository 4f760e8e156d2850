// Operands of different extents, aligned from the right: which of their elements meet.
#pragma once

#include "runtime/tensor/tensor.h"

namespace spmd::runtime {

// The smallest extents that all operands stretch to.
Dims broadcast_dims(llvm::ArrayRef<llvm::ArrayRef<int64_t>> operands);

// How elements of operands meet those of a tensor of extents `dims`: in runs along which a step of
// the tensor is a step of 0 or 1 in each operand.
class Broadcast {
public:
  Broadcast(llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<llvm::ArrayRef<int64_t>> operands);

  int64_t step(unsigned operand) const { return strides_[operand].back(); }
  // f(first, offsets, count): elements first .. first + count - 1 meet those of operand k from
  // offsets[k] on, step(k) apart.
  template <class F> void runs(F &&f) const {
    llvm::SmallVector<int64_t, 4> offsets(strides_.size(), 0);
    Dims at(dims_.size(), 0);
    int64_t size = count(dims_), run = dims_.back();
    for (int64_t first = 0; first < size; first += run) {
      f(first, offsets.data(), run);
      advance(at, offsets);
    }
  }

private:
  void advance(Dims &at, llvm::SmallVectorImpl<int64_t> &offsets) const;
  bool merges(unsigned dim) const;

  Dims dims_; // without those of extent 1, neighbours merged where all operands allow it
  llvm::SmallVector<Dims, 4> strides_; // per operand
};

} // namespace spmd::runtime
