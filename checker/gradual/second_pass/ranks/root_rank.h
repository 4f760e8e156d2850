// What the root of a sum to one rank has, and what it makes of it until it hands that out to all.
#pragma once

#include "checker/gradual/blocks/root_values.h"
#include "checker/gradual/second_pass/part.h"

namespace spmd::checker {

class RootRank : public SecondPassPart {
public:
  RootRank(WalkState &state, CurrentInst &now) : SecondPassPart(state, now), roots_(program_) {}

  void begin();
  void take_root(const rules::Application &app);
  void judge_handed_out(const ir::Inst &inst, const rules::ResolvedOp &op);
  void judge(const rules::Application &app) const;
  // The type of a result as the root sees it; none where it is nobody's alone.
  std::optional<ir::Type> seen(ir::InstId id, const ir::Type &type) const;
  // After that is proved. `type`: as the others see it.
  void keep(ir::ValueId value, const ir::Type &seen, ir::Type &type);
  void follow_gradient(ir::ValueId value) { roots_.follow_gradient(value); }

  ir::AxisSet proved_on_root(ir::ValueId operand) const;

private:
  RootValues roots_;
  std::optional<RootValues::Seen> on_root_; // what operands are on one rank, or the result of a sum
  bool handed_out_ = false;                 // what that rank has is handed out
};

} // namespace spmd::checker
