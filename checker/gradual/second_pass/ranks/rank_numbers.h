// Numbers that each rank counts or states for itself: positions, and the rate of an optimizer.
#pragma once

#include "checker/gradual/blocks/numbering.h"
#include "checker/gradual/second_pass/part.h"

#include "llvm/ADT/DenseSet.h"

namespace spmd::checker {

class RankNumbers : public SecondPassPart {
public:
  RankNumbers(WalkState &state, CurrentInst &now)
      : SecondPassPart(state, now),
        numbering_(program_, gradual_.cuts().positions(), gradual_.by_kinds()) {}

  void judge_rate(ir::InstId id, const rules::Application &app);
  void judge_positions(ir::InstId id, const rules::Application &app,
                       llvm::ArrayRef<ir::ValueId> results);
  // What numbers a dimension is not cut there. `before`: the type as its rule has it.
  void keep(ir::ValueId value, const ir::Type &before, ir::Type &type) const;

private:
  Numbering numbering_;
  llvm::DenseSet<uint32_t> reported_; // values that were reported as such numbers
};

} // namespace spmd::checker
