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
  void take_overwritten();
};

} // namespace spmd::checker
