// Strides of stretched operands.
#include "runtime/kernels/broadcast.h"

#include "ir/support/check.h"

#include <algorithm>

namespace spmd::runtime {

Dims broadcast_dims(llvm::ArrayRef<llvm::ArrayRef<int64_t>> operands) {
  Dims dims;
  for (llvm::ArrayRef<int64_t> operand : operands) {
    if (operand.size() > dims.size())
      dims.insert(dims.begin(), operand.size() - dims.size(), 1);
    for (size_t i = 0; i < operand.size(); ++i)
      if (int64_t &dim = dims[dims.size() - operand.size() + i]; dim == 1)
        dim = operand[i];
  }
  return dims;
}

Broadcast::Broadcast(llvm::ArrayRef<int64_t> dims,
                     llvm::ArrayRef<llvm::ArrayRef<int64_t>> operands) {
  strides_.resize(operands.size());
  llvm::SmallVector<int64_t, 4> units(operands.size(), 1);
  // From the innermost dimension outwards; turned round at the end.
  for (size_t right = 0; right < dims.size(); ++right) {
    int64_t dim = dims[dims.size() - 1 - right];
    for (size_t k = 0; k < operands.size(); ++k) {
      int64_t extent = right < operands[k].size() ? operands[k][operands[k].size() - 1 - right] : 1;
      SPMD_CHECK(extent == 1 || extent == dim, "an operand does not stretch to the result");
      if (dim != 1)
        strides_[k].push_back(extent == 1 ? 0 : units[k]);
      units[k] *= extent;
    }
    if (dim == 1)
      continue;
    dims_.push_back(dim);
    if (merges(static_cast<unsigned>(dims_.size() - 1))) {
      dims_.pop_back();
      dims_.back() *= dim;
      for (Dims &strides : strides_)
        strides.pop_back();
    }
  }
  if (dims_.empty()) {
    dims_.push_back(1);
    for (Dims &strides : strides_)
      strides.push_back(0);
  }
  std::reverse(dims_.begin(), dims_.end());
  for (Dims &strides : strides_)
    std::reverse(strides.begin(), strides.end());
}

// While dimensions stand innermost first: whether one continues that before it.
bool Broadcast::merges(unsigned dim) const {
  if (dim == 0)
    return false;
  for (const Dims &strides : strides_)
    if (strides[dim] != strides[dim - 1] * dims_[dim - 1])
      return false;
  return true;
}

void Broadcast::advance(Dims &at, llvm::SmallVectorImpl<int64_t> &offsets) const {
  for (size_t d = dims_.size() - 1; d-- > 0;) {
    bool wraps = ++at[d] == dims_[d];
    if (wraps)
      at[d] = 0;
    for (size_t k = 0; k < offsets.size(); ++k)
      offsets[k] += wraps ? -strides_[k][d] * (dims_[d] - 1) : strides_[k][d];
    if (!wraps)
      return;
  }
}

} // namespace spmd::runtime
