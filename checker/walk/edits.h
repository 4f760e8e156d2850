// An edit that is tried in memory.
#pragma once

#include "rules/apply.h"

#include "llvm/ADT/SmallVector.h"

namespace spmd::checker {

// Some operands of an instruction are seen otherwise, or its attributes, or it is dropped.
struct Edit {
  ir::InstId inst;
  llvm::SmallVector<std::pair<uint32_t, rules::Arg>, 1>
      operands;      // position, and what it is seen as
  ir::AttrsId attrs; // none: as they are
  // What makes the operands that, on its own attributes. Needed in a body, which is typed for each call
  // anew: there they are seen as what it gives for the operands of the call.
  ir::OpNameId mover = {};
  ir::AttrsId mover_attrs = {};
  bool drop = false; // the result is the operand; of a coalesced call: that of `member` is
  uint32_t member = 0;
  // A transition forward has its dual backward: where the program contains the backward, gradients
  // of the edited operands go through it.
  llvm::SmallVector<ir::ValueId, 1> gradients;
  ir::OpNameId dual_op;
  ir::AttrsId dual_attrs;
};

} // namespace spmd::checker
