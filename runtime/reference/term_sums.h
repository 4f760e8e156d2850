// How large the terms are that an ordinary op adds up, where it is a sum of products.
#pragma once

#include "runtime/reference/reference.h"

namespace spmd::runtime {

struct TermSums {
  Meanings sums;       // per result: of the magnitudes of its terms, as the instruction sees it
  double count = 1;    // products that are summed for one element, at most
  bool copies = false; // elements are moved, none is computed
  ir::DType widest = ir::DType::Unknown; // of the floats that enter
};

// From the magnitudes of the operands. None for an op that is more than sums of products: a
// function, or a kernel that does not only move elements.
llvm::Expected<std::optional<TermSums>> term_sums(Reference &reference, const ResolvedInst &seen,
                                                  uint64_t draws, const Meanings &magnitudes);

} // namespace spmd::runtime
