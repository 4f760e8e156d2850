// Elements as files hold them: little endian, row major, one after another.
#pragma once

#include "runtime/tensor/tensor.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <optional>
#include <string>

namespace spmd::runtime {

// Fills a tensor of `double` or complex cells; there are as many bytes as its elements take. An
// error names the first whole number that is beyond 2^53, which no cell can hold.
llvm::Error unpack_elements(llvm::StringRef bytes, Tensor &tensor);
// Of any cells; residues give 8 bytes each, whatever the dtype.
std::string pack_elements(const Tensor &tensor);

// Bytes of that many elements of the dtype; none if a dimension is negative, or there are too many
// to count.
std::optional<uint64_t> bytes_of(llvm::ArrayRef<int64_t> dims, ir::DType dtype);
// `[3, 17]`: the place of an element; `[]` for a scalar.
std::string print_position(llvm::ArrayRef<int64_t> dims, int64_t element);
// `f32[8, 16]`
std::string print_shape(ir::DType dtype, llvm::ArrayRef<int64_t> dims);

} // namespace spmd::runtime
