// Lists of blocks, as an all-gather or an all-to-all leaves them, and what is joined of them.
#pragma once

#include "checker/gradual/blocks/block_lists.h"
#include "checker/gradual/second_pass/part.h"

#include "llvm/ADT/SmallVector.h"

namespace spmd::checker {

class JoinedBlocks : public SecondPassPart {
public:
  using SecondPassPart::SecondPassPart;

  void begin();
  void judge_order(ir::InstId id, const rules::Application &app);
  void judge(const rules::Application &app, llvm::ArrayRef<ir::ValueId> results);
  void cut_joined(uint32_t index, ir::Type &type) const;
  void keep(uint32_t index, ir::Type &type);

  // What of a joined result is proved where the blocks are.
  ir::AxisSet proved(uint32_t index, ir::AxisSet known) const;

private:
  ir::AxisSet joined(uint32_t index) const;
  ir::AxisSet cut_beside(uint32_t index, ir::Type &type) const;
  void follow_alternating(const rules::Application &app, llvm::ArrayRef<ir::ValueId> results);

  BlockLists lists_;
  // By value: the axes along which a rank has blocks of several tensors behind one another in the
  // dimension that is cut. The blocks of all ranks side by side are not these tensors one behind
  // the other.
  llvm::DenseMap<uint32_t, ir::AxisSet> alternating_;
  llvm::SmallVector<std::optional<BlockLists::Joined>, 2> joined_; // by result
  ir::AxisSet cut_beside_; // along which something that was joined is cut beside that
  ir::AxisSet exchanged_;  // along which blocks are exchanged with those of other axes
};

} // namespace spmd::checker
