// A table whose rows are cut, as an embedding over a split vocabulary: each rank looks up what lies
// in its own rows and sets the rest to zero. What was looked up is then an addend of the whole.
#pragma once

#include "checker/check.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace spmd::checker {

class Lookups {
public:
  // Axes on which the result is looked up in the rank's own rows alone, and those on which what
  // lies elsewhere is zero by now. `summed`: what lies elsewhere is not zero, and ranks add it up.
  struct Made {
    ir::AxisSet looked_up, addends, summed;
    bool mask = false; // the result is one of zeros and ones
    // Axes on which the rank's own rows get what was zero for others, in dimension `dim`: the
    // backward of such a lookup.
    ir::AxisSet scattered;
    unsigned dim = 0;
    bool zeroed = false; // the result is zero where a mask says so
  };
  Made made(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands) const;
  ir::AxisSet axes(ir::ValueId value) const { return axes_.lookup(value.index); }
  void learn(ir::ValueId value, const Made &made) {
    if (made.looked_up)
      axes_[value.index] = made.looked_up;
    if (made.mask)
      masks_.insert(value.index);
    if (made.zeroed)
      zeroed_.insert(value.index);
  }

private:
  static ir::AxisSet own_rows(const rules::Application &app);
  void scatter(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
               Made &made) const;
  bool has_mask(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands) const;

  llvm::DenseMap<uint32_t, ir::AxisSet> axes_; // by value
  llvm::DenseSet<uint32_t> masks_, zeroed_;    // values
};

} // namespace spmd::checker
