// Sizes of axes with which the program has multiplied terms of a loss.
#pragma once

#include "checker/gradual/second_pass/part.h"

#include "llvm/ADT/DenseMap.h"

namespace spmd::checker {

class TermWeights : public SecondPassPart {
public:
  using SecondPassPart::SecondPassPart;

  void follow(const ir::Inst &inst, ir::ValueId value);
  // Whether a scale differs by what may be the weight of a term.
  bool explain(Place place, const rules::Violation &violation) const;

private:
  llvm::DenseMap<uint32_t, ir::AxisSet> weights_; // by value
};

} // namespace spmd::checker
