// Which violations are findings: those that are wrong whatever is unknown.
#pragma once

#include "checker/gradual/second_pass/parts.h"

#include "rules/violations/gradients.h"

namespace spmd::checker {

class Certainty : public SecondPassPart {
public:
  Certainty(WalkState &state, Parts &parts) : SecondPassPart(state, parts.now), parts_(parts) {}

  bool admits(Place place, rules::Violation &violation);

private:
  bool certain(Place place, rules::Violation &violation);
  bool is_of_zeros(Place place, const rules::Violation &violation) const;
  bool meets_kept_addend(Place place, const rules::Violation &violation) const;
  bool steps_inside(Place place, const rules::Violation &violation) const;
  ir::AxisSet open_at(Place place, rules::Violation &violation);
  ir::AxisSet open_gradient(const rules::GradientTypeMismatch &mismatch) const;
  ir::AxisSet open_addends(const ir::Inst &inst, const rules::Violation &violation) const;
  llvm::SmallVector<ir::ValueId, 4> forward_operands(const ir::Inst &inst) const;
  ir::AxisSet moved(ir::InstId id) const;
  bool again_in_optimizer(Place place, rules::Violation &violation);

  const Parts &parts_;
  llvm::DenseMap<uint32_t, Place> first_pending_; // gradients that the optimizer reads: where first
};

} // namespace spmd::checker
