// Generated data of inputs: each number is a hash of a key and of its position in the whole tensor.
#pragma once

#include "runtime/inputs/contents.h"
#include "runtime/plan/placement.h"

namespace spmd::runtime {

// Cells of the domain, with the same numbers; from `double` or complex cells.
Tensor in_domain(Tensor tensor, Domain domain);

struct NumberOptions {
  Domain domain = Domain::Declared;
  bool whole_numbers = false; // reals are whole numbers from -2 to 2
  bool nonzero = false;       // no element is 0: it is an addend of one rank
};

// A key for one input: of a seed, a name, and an index of what else tells tensors of one name
// apart.
uint64_t number_key(uint64_t seed, llvm::StringRef name, uint64_t index);
// Fills a tensor of the extents of a block.
void draw_numbers(Tensor &tensor, const Block &block, const Content &content, uint64_t key,
                  const NumberOptions &options);

} // namespace spmd::runtime
