// Rows that a mask picks out of a rank's own block, as of a loss over masked tokens: with those of
// the other ranks they are the rows that the mask of all picks out of all. How many they are, each
// rank knows of its own alone.
#pragma once

#include "rules/apply.h"

#include "llvm/ADT/DenseMap.h"

namespace spmd::checker {

class MaskSelectedRows {
public:
  // Axes along which the result is such rows of its operand's, dimension 0; or a block into which
  // such rows are put back.
  static ir::AxisSet picked(const rules::Application &app);
  // Axes along which a value has a number of rows of its own.
  ir::AxisSet own_counts(ir::ValueId value) const { return counts_.lookup(value.index); }
  // Those of the operands, where the op asks for that number: it divides by it, or sends the rows.
  static bool counts_rows(const rules::Application &app);
  void learn(ir::ValueId value, ir::AxisSet axes) {
    if (axes)
      counts_[value.index] = axes;
  }

private:
  llvm::DenseMap<uint32_t, ir::AxisSet> counts_; // by value
};

} // namespace spmd::checker
