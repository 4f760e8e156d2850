// What one rank alone has, and is zero on all others: an addend on each.
#pragma once

#include "checker/gradual/blocks/one_rank_masks.h"
#include "checker/gradual/second_pass/blocks/zero_blocks.h"
#include "checker/gradual/second_pass/part.h"

namespace spmd::checker {

class OneRankAddends : public SecondPassPart {
public:
  OneRankAddends(WalkState &state, CurrentInst &now, const Offsets &offsets)
      : SecondPassPart(state, now), alone_(offsets) {}

  void begin() { made_ = {}; }
  void add(const ir::Inst &inst, const rules::ResolvedOp &op);
  void hand_in(const ir::Inst &inst, const rules::ResolvedOp &op);
  void judge(const rules::Application &app, const ZeroBlocks &zeros);
  void learn(ir::ValueId value);
  void keep(const rules::ResolvedOp &op, ir::Type &type);
  void follow(ir::InstId id, ir::ValueId value, const ir::Type &type);

  // Along which the value is pending only because one rank alone has something: the others may do
  // anything with their zeros, as the later stages of a pipeline do in its first turns.
  ir::AxisSet on_one_rank(ir::ValueId value) const { return on_one_rank_.lookup(value.index); }
  bool is_mask(ir::ValueId value) const { return bool(alone_.mask(value)); }
  // Along which something was on one rank alone so far.
  ir::AxisSet axes() const { return axes_; }
  // Along which the scale of the first result is known by that.
  ir::AxisSet scaled() const { return made_.scaled; }

private:
  std::optional<int64_t> rank_of(ir::ValueId value) const { return ranks_.lookup(value.index); }
  ir::AxisSet of_several() const;

  OneRankMasks alone_;
  ir::AxisSet axes_;
  OneRankMasks::Facts made_;
  llvm::DenseMap<uint32_t, ir::AxisSet> on_one_rank_;      // by value
  llvm::DenseMap<uint32_t, std::optional<int64_t>> ranks_; // which one, likewise
};

} // namespace spmd::checker
