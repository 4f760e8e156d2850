// Which operands an instruction reads, and which of them are parts of what a rank has.
#pragma once

#include "checker/gradual/second_pass/blocks/zero_blocks.h"

namespace spmd::checker {

class OperandUse : public SecondPassPart {
public:
  using SecondPassPart::SecondPassPart;

  void begin(const ir::Inst &inst);
  void find_unread(const rules::Application &app);
  void find_parts(const rules::Application &app, const ZeroBlocks &zeros);
  // A number that was stretched along a dimension of which others have a block is its own block.
  // `numbers`: whether a value has other numbers there after all.
  void take_stretched(const rules::Application &app,
                      llvm::function_ref<bool(ir::ValueId, unsigned)> numbers);
  void take_overwritten();
};

} // namespace spmd::checker
