// Norms of blocks: squares that are summed over ranks, and their roots.
#pragma once

#include "checker/gradual/norms.h"
#include "checker/gradual/second_pass/part.h"

#include "llvm/ADT/SmallVector.h"

namespace spmd::checker {

class BlockNorms : public SecondPassPart {
public:
  BlockNorms(WalkState &state, CurrentInst &now) : SecondPassPart(state, now), norms_(program_) {}

  void begin();
  void take_squares(const ir::Inst &inst, const rules::ResolvedOp &op);
  void judge(ir::InstId id, const rules::Application &app, llvm::ArrayRef<ir::ValueId> results);
  // False where the instruction was not judged.
  bool keep(ir::ValueId value, uint32_t index, ir::Type &type);

  // The axes along which a value is the norm of a block, or of all.
  ir::AxisSet roots(ir::ValueId value) const { return norms_.root(value).axes; }

private:
  Norms norms_;
  llvm::SmallVector<Norms::Facts, 2> made_; // by result
  ir::AxisSet of_one_rank_; // along which it is a norm that one rank puts beside those of all
};

} // namespace spmd::checker
