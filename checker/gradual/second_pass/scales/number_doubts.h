// By the sizes of which axes a scale may be off, because a plain number was taken as the size of
// one axis, or as none, where it may be another.
#pragma once

#include "checker/gradual/second_pass/part.h"

#include "llvm/ADT/DenseMap.h"

namespace spmd::checker {

class NumberDoubts : public SecondPassPart {
public:
  using SecondPassPart::SecondPassPart;

  void follow(ir::InstId id, ir::ValueId value);
  // The axes on which two scales that differ may be equal.
  ir::AxisSet open(Place place, const rules::Violation &violation) const;

private:
  llvm::DenseMap<uint32_t, AxisSizeNumbers::Doubt> doubts_; // by value
};

} // namespace spmd::checker
