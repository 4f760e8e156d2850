// One array in NumPy's file format, versions 1 to 3.
#pragma once

#include "runtime/tensor/tensor.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>

namespace spmd::runtime {

// What the file says of itself; its bytes are not copied.
struct NpyArray {
  ir::DType dtype = ir::DType::Unknown; // Unknown: opaque elements of `bytes` bytes each
  unsigned element_bytes = 0;
  Dims dims;
  llvm::StringRef data;
};
// Errors: another file, a header that is damaged, an order or an element type that is none of ours,
// data that are too short or too long.
llvm::Expected<NpyArray> read_npy_header(llvm::StringRef bytes);
// Opaque elements of 2 bytes, or of 1, are those of `opaque` if that is so wide: the format has no
// word for them. Other opaque elements are an error.
llvm::Expected<Tensor> read_npy(llvm::StringRef bytes, ir::DType opaque = ir::DType::Unknown);

// bf16 and floats of 8 bits, for which the format has no word, are written as f32: no bit is lost.
// Residues are written as u64.
std::string print_npy(const Tensor &tensor);

} // namespace spmd::runtime
