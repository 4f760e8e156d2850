// The greatest or least elements of the blocks that ranks have, as a cross entropy over a split
// vocabulary takes them: what a collective makes of them with the same question is that of the
// whole.
#pragma once

#include "checker/check.h"

#include "llvm/ADT/DenseMap.h"

namespace spmd::checker {

// The axes that cut a dimension which a row takes away.
ir::AxisSet taken_axes(const rules::Application &app);

class Extremes {
public:
  // Axes on which the result is an extreme of the rank's own block, and those on which a collective
  // asks another question of such ones.
  struct Facts {
    ir::AxisSet own, mixed;
    bool greatest = false;
  };
  Facts infer(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands) const;
  void learn(ir::ValueId value, const Facts &facts) {
    if (facts.own)
      of_[value.index] = facts;
  }

private:
  llvm::DenseMap<uint32_t, Facts> of_; // by value
};

} // namespace spmd::checker
