// Blocks that ranks send to each other: round a ring, or in any other way.
#pragma once

#include "checker/gradual/second_pass/blocks/halo_exchange.h"
#include "checker/gradual/sent/rings.h"

#include "llvm/ADT/DenseMap.h"

namespace spmd::checker {

class RingBlocks : public SecondPassPart {
public:
  RingBlocks(WalkState &state, CurrentInst &now, const HaloExchange &edges)
      : SecondPassPart(state, now), edges_(edges),
        rings_(program_, gradual_.by_kinds(), state.rules) {}

  void declare(ir::ValueId value, const ir::Type &type);
  void begin();
  void follow_ring(const ir::Inst &inst, const rules::Application &app);
  void find_sent(const rules::Application &app);
  void judge(ir::InstId id, const rules::Application &app);
  void keep_sent(ir::ValueId value, uint32_t index, ir::Type &type);
  void keep_scale(const rules::ResolvedOp &op, ir::Type &type) const;
  // What has come together from all ranks is an ordinary tensor again.
  void keep_known(uint32_t index, ir::Type &type) const;

  // What the instruction makes of blocks that go round.
  const Rings::Facts &facts() const { return ring_; }

private:
  void judge_gradient(ir::InstId id);
  bool is_first_at(ir::InstId id, llvm::DenseSet<uint32_t> &lines) const;

  const HaloExchange &edges_;
  Rings rings_;
  ir::AxisSet mixed_;                  // along which blocks of different ranks have met
  llvm::DenseSet<uint32_t> mixed_at_;  // lines of the program where they did
  llvm::DenseSet<uint32_t> astray_at_; // and where gradients of other blocks were sent
  llvm::DenseMap<uint32_t, ir::AxisSet> made_of_sent_; // by value
  Rings::Facts ring_;
  ir::AxisSet received_;      // along which operands are blocks that another rank has sent
  ir::AxisSet sums_received_; // along which it adds sums over such blocks
};

} // namespace spmd::checker
