// Logarithms of sums over the blocks that ranks have, as a cross entropy over a split vocabulary
// takes them of each block: what they add up to is no logarithm of the whole sum. Each rank may
// subtract its own greatest element before, and add it afterwards.
#pragma once

#include "rules/apply.h"

#include "llvm/ADT/DenseMap.h"

namespace spmd::checker {

class LocalLogSumExp {
public:
  // Along which axes the result is one of these steps, in their order; `powers` are exponentials,
  // and `sum` is one of them or of products with them. Along `summed` a collective adds up such
  // logarithms, and along `unscaled` such sums, which are not divided by the same number.
  struct Facts {
    ir::AxisSet greatest, shifted, powers, sum, log, summed, unscaled;
  };
  Facts infer(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands) const;
  // `pending`: along which the value is a rank's addend of a sum.
  void learn(ir::ValueId value, Facts facts, ir::AxisSet pending) {
    facts.sum |= facts.powers & pending;
    facts.powers -= pending;
    if (facts.greatest | facts.shifted | facts.powers | facts.sum | facts.log)
      steps_[value.index] = facts;
  }
  ir::AxisSet axes(ir::ValueId value) const { return steps_.lookup(value.index).log; }

private:
  llvm::DenseMap<uint32_t, Facts> steps_; // by value
};

} // namespace spmd::checker
