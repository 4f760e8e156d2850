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
  void take_own_block(const ir::Inst &inst, const rules::ResolvedOp &op);
  void take_joined_counts(const rules::ResolvedOp &op);
  // `alone`: along which something is on one rank alone.
  void take_gradients(const ir::Inst &inst, const rules::ResolvedOp &op, ir::AxisSet alone);
  void keep_shared(const ir::Inst &inst, ir::ValueId value);
  void keep_alike(const ir::Inst &inst, ir::ValueId value);
  void keep_equal(const ir::Inst &inst, ir::ValueId value, ir::Type &type);

  // Whether it is the gradient of a loss that all ranks share, or a number times that.
  bool is_shared(ir::ValueId value) const { return shared_.contains(value.index); }

  // Whether it makes a block of what each rank has found of a gradient, or computes with one: what
  // the other ranks would add to it is missing, and the script may make up for that by a factor.
  bool is_of_own_block(ir::InstId id) const {
    const ir::Inst &inst = program_.insts[id];
    return inst.result_count != 0 && own_blocks_.contains(inst.first_result.index);
  }

private:
  ir::AxisSet addends_of_gradient(const ir::Inst &inst) const;
  bool is_transpose(const ir::Inst &inst);
  ir::AxisSet averaged();

  llvm::DenseSet<uint32_t> shared_;     // by value
  std::optional<ir::AxisSet> averaged_; // once it was asked for
  llvm::DenseSet<uint32_t> sums_;       // places of the program where a forward adds up over ranks
  // Gradients that are equal on the ranks of axes along which each has a loss of its own.
  llvm::DenseMap<uint32_t, ir::AxisSet> equal_; // by value
  llvm::DenseSet<uint32_t> own_blocks_;         // by value
  // Addends that are equal on all ranks of axes: of the gradient of a loss that these share.
  llvm::DenseMap<uint32_t, ir::AxisSet> alike_; // by value
  // Axes over which something was summed, of what a value of the forward is made of.
  llvm::DenseMap<uint32_t, ir::AxisSet> summed_; // by value
};

} // namespace spmd::checker
