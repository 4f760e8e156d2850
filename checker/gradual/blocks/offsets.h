// Integers that differ between the ranks of an axis by where a rank's block begins, such as
// `ids - rank * rows`, and masks that say which of them lie in the block. A rank looks up its own
// rows of a table by such numbers, and sets to zero what the mask says is elsewhere.
#pragma once

#include "checker/check.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

#include <map>

namespace spmd::checker {

class Offsets {
public:
  // By axis: what a number grows by from one rank to the next. None of them is 0.
  struct Earlier {
    bool operator()(ir::AxisId a, ir::AxisId b) const { return a.index < b.index; }
  };
  using Steps = std::map<ir::AxisId, int64_t, Earlier>;

  // In each element: that of `of`, which is equal on these axes, and `plus`, and the steps. Without
  // `of` it is a plain number.
  struct Number {
    ir::ValueId of;
    int64_t plus = 0;
    Steps steps;
    ir::InstId by; // the last that added a step
  };
  // True where `of` with the steps lies between `low` and `high` (which is above it), or not there.
  struct Mask {
    ir::ValueId of;
    Steps steps;
    std::optional<int64_t> low, high;
    bool inside = true;
    ir::InstId by;
  };

  // An integer of which nothing is known is itself.
  Number number(ir::ValueId value) const;
  const Mask *mask(ir::ValueId value) const;
  // Along which the value is known to differ in this way.
  ir::AxisSet axes(ir::ValueId value) const;

  // Notes what the first result is.
  void learn(ir::InstId id, const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
             ir::ValueId result);

private:
  std::optional<Number> read(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
                             const rules::Slot *slot) const;
  std::optional<Number> computed(ir::InstId id, const rules::Application &app,
                                 llvm::ArrayRef<ir::ValueId> operands) const;
  std::optional<Mask> compared(ir::InstId id, const rules::Application &app,
                               llvm::ArrayRef<ir::ValueId> operands) const;
  std::optional<Mask> combined(const rules::Application &app,
                               llvm::ArrayRef<ir::ValueId> operands) const;

  llvm::DenseMap<uint32_t, Number> numbers_; // by value
  llvm::DenseMap<uint32_t, Mask> masks_;
};

} // namespace spmd::checker
