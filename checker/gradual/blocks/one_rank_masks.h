// What one rank alone has, and is zero on all others: a program chooses it by the place of the
// rank, as the last stage of a pipeline has the loss. Whatever it is, each rank has an addend.
#pragma once

#include "checker/gradual/blocks/offsets.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace spmd::checker {

class OneRankMasks {
public:
  explicit OneRankMasks(const Offsets &offsets) : offsets_(offsets) {}

  // Axes along which the result is a mask that is true on one rank at most, and those along which
  // it is zero on all ranks but one; `scaled`: of known scale.
  struct Facts {
    ir::AxisSet mask, value, scaled;
    std::optional<int64_t> rank; // which one, along the axis, where the program says a number
  };
  // `is_zero`: whether an operand is zeros, whatever its type says.
  Facts infer(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
              llvm::function_ref<bool(ir::ValueId)> is_zero) const;
  void learn(ir::ValueId value, const Facts &facts) {
    if (facts.mask)
      masks_[value.index] = facts.mask;
    if (facts.rank)
      ranks_[value.index] = facts.rank;
  }
  // The masks of an instruction that chooses by them: the rule sees them as equal on all ranks.
  ir::AxisSet mask(ir::ValueId value) const { return masks_.lookup(value.index); }

private:
  const Offsets &offsets_;
  llvm::DenseMap<uint32_t, ir::AxisSet> masks_;            // by value
  llvm::DenseMap<uint32_t, std::optional<int64_t>> ranks_; // of masks
};

} // namespace spmd::checker
