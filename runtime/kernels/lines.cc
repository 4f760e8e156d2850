// Positions of lines.
#include "runtime/kernels/lines.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

// All positions of the dimensions for which `wanted`, in row-major order.
template <class F> static std::vector<int64_t> offsets(llvm::ArrayRef<int64_t> dims, F wanted) {
  std::vector<int64_t> found = {0};
  int64_t unit = count(dims);
  for (unsigned d = 0; d < dims.size(); ++d) {
    unit = dims[d] ? unit / dims[d] : 0;
    if (!wanted(d))
      continue;
    std::vector<int64_t> finer;
    finer.reserve(found.size() * static_cast<size_t>(dims[d]));
    for (int64_t first : found)
      for (int64_t i = 0; i < dims[d]; ++i)
        finer.push_back(first + i * unit);
    found = std::move(finer);
  }
  return found;
}

Lines::Lines(llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<unsigned> along) {
  firsts_ = offsets(dims, [&](unsigned d) { return !llvm::is_contained(along, d); });
  steps_ = offsets(dims, [&](unsigned d) { return llvm::is_contained(along, d); });
}

} // namespace spmd::runtime
