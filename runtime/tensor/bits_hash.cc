// Cells are hashed as they lie in memory: machines of one run have one byte order.
#include "runtime/tensor/bits_hash.h"

#include "ir/support/store.h"

#include "llvm/Support/xxhash.h"

namespace spmd::runtime {

uint64_t bits_hash(const Tensor &tensor) {
  uint64_t hash = ir::mix(tensor.cells.index(), tensor.dims.size());
  for (int64_t dim : tensor.dims)
    hash = ir::mix(hash, static_cast<uint64_t>(dim));
  return tensor.visit([&](const auto &cells) {
    llvm::StringRef bytes(reinterpret_cast<const char *>(cells.data()),
                          cells.size() * sizeof(cells[0]));
    return ir::mix(hash, llvm::xxHash64(bytes));
  });
}

} // namespace spmd::runtime
