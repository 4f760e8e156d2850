// What ranks have of gradients, and of what is equal on all: the whole, or addends of it.
#pragma once

#include "checker/gradual/second_pass/part.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace spmd::checker {

class GradientAddends : public SecondPassPart {
public:
  using SecondPassPart::SecondPassPart;

  void take_shares(const ir::Inst &inst, const rules::ResolvedOp &op);
  void take_joined_counts(const rules::ResolvedOp &op);
  // `alone`: along which something is on one rank alone.
  void take_gradients(const ir::Inst &inst, const rules::ResolvedOp &op, ir::AxisSet alone);
  void keep_shared(const ir::Inst &inst, ir::ValueId value);
  void keep_equal(const ir::Inst &inst, ir::ValueId value, ir::Type &type);

  // Whether it is the gradient of a loss that all ranks share, or a number times that.
  bool is_shared(ir::ValueId value) const { return shared_.contains(value.index); }

private:
  ir::AxisSet addends_of_gradient(const ir::Inst &inst) const;
  bool is_transpose(const ir::Inst &inst);
  ir::AxisSet averaged();

  llvm::DenseSet<uint32_t> shared_;     // by value
  std::optional<ir::AxisSet> averaged_; // once it was asked for
  llvm::DenseSet<uint32_t> sums_;       // places of the program where a forward adds up over ranks
  // Gradients that are equal on the ranks of axes along which each has a loss of its own.
  llvm::DenseMap<uint32_t, ir::AxisSet> equal_; // by value
  // Axes over which something was summed, of what a value of the forward is made of.
  llvm::DenseMap<uint32_t, ir::AxisSet> summed_; // by value
};

} // namespace spmd::checker
