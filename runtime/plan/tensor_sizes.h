// Collectives that take the lengths of their pieces from tensors, as experts without a capacity do.
#pragma once

#include "ir/program.h"

#include "llvm/ADT/DenseSet.h"

#include <map>

namespace spmd::runtime {

// What such tensors say in one run.
struct TensorSizes {
  using Lengths = llvm::SmallVector<int64_t, 8>;
  // By ValueId and path of the body (runtime/plan/placement.h); by position of the rank in its
  // mesh.
  std::map<std::pair<uint32_t, uint64_t>, std::vector<Lengths>> lengths;

  const std::vector<Lengths> *find(ir::ValueId value, uint64_t path) const {
    auto at = lengths.find({value.index, path});
    return at == lengths.end() ? nullptr : &at->second;
  }
};

bool has_tensor_sizes(const ir::Program &program);
// The symbols that such a collective brings in: extents that only data tell, on each rank others.
// By StringId.
llvm::DenseSet<uint32_t> data_symbols(const ir::Program &program);

} // namespace spmd::runtime
