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
  // Where each rank has one row of a parameter, a row that is equal on all ranks may be the
  // gradient of a single one as well as a number for all rows.
  void doubt_single_rows(const rules::Application &app);
  // Rows that each rank has put into slots of its own, as a mixture of experts does with those that
  // have room: what the slots of a rank hold meets the numbers of its slots.
  void take_slots(const rules::Application &app);
  void find_left_slots(ir::ValueId result, const ir::Type &type);
  void learn_slots(const rules::ResolvedOp &op, ir::ValueId result, const ir::Type &type);
  void take_overwritten();

private:
  void doubt_extents(const rules::Application &app, const rules::Slot *like);
  bool has_whole(ir::ValueId value, const ir::Type &type, CutPositions::Class cls) const;

  // By class of a dimension: the axes along which its numbers are those of a rank's own slots, and
  // of which rows these are.
  struct Slots {
    ir::AxisSet axes;
    CutPositions::Class rows;
  };
  llvm::DenseMap<CutPositions::Class, Slots> slots_;
  // What was exchanged an odd number of times: the slots of other ranks.
  llvm::DenseSet<uint32_t> sent_away_; // by value
};

} // namespace spmd::checker
