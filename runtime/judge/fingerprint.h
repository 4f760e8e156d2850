// What a rank says of what it holds, in place of the data: its form, a hash of its bits, and a sum
// of its elements with random weights, by which blocks and addends of several ranks are compared
// with the whole that they mean.
#pragma once

#include "runtime/tensor/tensor.h"

#include "llvm/Support/Error.h"

#include <optional>
#include <string>
#include <vector>

namespace spmd::runtime {

// The sum is linear, and the weight of an element depends on its position in the whole alone: the
// sums of blocks add up to that of the whole, those of addends to that of their sum. Tensors that
// differ have equal sums with a probability of (number of dimensions) / 2^61.
std::optional<Residue> weighted_sum(const Tensor &tensor, llvm::ArrayRef<int64_t> first,
                                    uint64_t key);

struct Fingerprint {
  bool there = false; // else the rank holds nothing
  ir::DType dtype = ir::DType::Unknown;
  Dims dims;
  uint64_t bits = 0;          // a hash
  std::optional<Residue> sum; // none: not asked for, or an element is no finite number
};

// `first`: where the tensor begins in the whole; none: no sum is wanted.
Fingerprint fingerprint_of(const Tensor &tensor, std::optional<llvm::ArrayRef<int64_t>> first,
                           uint64_t key);

// As bytes, one after another.
void write(const Fingerprint &fingerprint, std::string &to);
// Takes one from the front; false: there is none.
bool read(llvm::StringRef &from, Fingerprint &fingerprint);

} // namespace spmd::runtime
