// Values that are made of zeros, and cut; blocks around which an instruction puts zeros.
#pragma once

#include "checker/gradual/second_pass/part.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace spmd::checker {

class ZeroBlocks : public SecondPassPart {
public:
  using SecondPassPart::SecondPassPart;

  void begin() { padded_ = {}, cleared_ = {}; }
  void scale_zeros();
  // `chooses_one_rank`: whether an operand is a mask that is true on one rank alone.
  void take_cleared(const rules::ResolvedOp &op,
                    llvm::function_ref<bool(ir::ValueId)> chooses_one_rank);
  void take_stated(const rules::Application &app);
  void find_padded(const rules::Application &app);
  // `type`: as its rule has it; `before`: the axes on which it is zero then.
  void keep(const ir::Inst &inst, ir::ValueId value, ir::AxisSet before, ir::Type &type);
  void keep_padded(ir::Type &type) const;

  bool contains(ir::ValueId value) const { return blocks_.contains(value.index); }
  // Likewise, or zeros that the instruction takes for what stands beside them.
  bool are_zeros(ir::ValueId value) const { return value == cleared_ || contains(value); }
  const llvm::DenseSet<uint32_t> &values() const { return blocks_; }

private:
  bool makes_zero(const ir::Inst &inst);
  bool chooses_zeros(const ir::Inst &inst, const rules::ResolvedOp &op) const;

  llvm::DenseSet<uint32_t> blocks_; // by value
  ir::ValueId cleared_;             // the operand that is taken for another one
  ir::AxisSet padded_;              // along which the instruction puts zeros around a block
};

} // namespace spmd::checker
