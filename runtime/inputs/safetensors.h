// Named tensors in one file: 8 bytes of length, a JSON header, elements one tensor after another.
#pragma once

#include "runtime/tensor/tensor.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>
#include <utility>
#include <vector>

namespace spmd::runtime {

inline constexpr uint64_t kMaxTensorHeader = 100'000'000; // bytes, as the format says

struct StoredTensor {
  std::string name;
  ir::DType dtype = ir::DType::Unknown;
  Dims dims;
  llvm::StringRef data; // as many bytes as the elements take
};

// In the order of their data. Bytes are not copied. Errors: a header that is too long, damaged or
// repeats a name, an element type that is none of ours, data that overlap, leave gaps or are
// missing.
llvm::Expected<std::vector<StoredTensor>> read_safetensors(llvm::StringRef bytes);
// An error as of unpack_elements.
llvm::Expected<Tensor> unpack(const StoredTensor &stored);

// One file of all of them, in that order; names differ. Residues are written as U64.
std::string print_safetensors(llvm::ArrayRef<std::pair<std::string, const Tensor *>> tensors);

} // namespace spmd::runtime
