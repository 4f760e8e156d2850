// Logarithms of sums over the blocks that ranks have, as a cross entropy over a split vocabulary
// takes them of each block: what they add up to is no logarithm of the whole sum. Each rank may
// subtract its own greatest element before, and add it afterwards.
#pragma once

#include "rules/apply.h"

#include "llvm/ADT/DenseMap.h"

namespace spmd::checker {

class LocalLogSumExp {
public:
  // Along which axes the result is one of these steps, in their order. `summed`: along which a
  // collective adds up such logarithms.
  struct Facts {
    ir::AxisSet greatest, shifted, sum, log, summed;
  };
  Facts infer(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands) const;
  void learn(ir::ValueId value, const Facts &facts) {
    if (facts.greatest | facts.shifted | facts.sum | facts.log)
      steps_[value.index] = facts;
  }
  ir::AxisSet axes(ir::ValueId value) const { return steps_.lookup(value.index).log; }

private:
  llvm::DenseMap<uint32_t, Facts> steps_; // by value
};

} // namespace spmd::checker
