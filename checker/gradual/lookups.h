// A table whose rows are cut, as an embedding over a split vocabulary: each rank looks up what lies
// in its own rows and sets the rest to zero. What was looked up is then an addend of the whole.
#pragma once

#include "checker/check.h"

#include "llvm/ADT/DenseMap.h"

namespace spmd::checker {

class Lookups {
public:
  // Axes on which the result is looked up in the rank's own rows alone, and those on which what
  // lies elsewhere is zero by now. `summed`: what lies elsewhere is not zero, and ranks add it up.
  struct Made {
    ir::AxisSet looked_up, addends, summed;
  };
  Made made(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands) const;
  ir::AxisSet axes(ir::ValueId value) const { return axes_.lookup(value.index); }
  void learn(ir::ValueId value, const Made &made) {
    if (made.looked_up)
      axes_[value.index] = made.looked_up;
  }

private:
  static ir::AxisSet own_rows(const rules::Application &app);

  llvm::DenseMap<uint32_t, ir::AxisSet> axes_; // by value
};

} // namespace spmd::checker
