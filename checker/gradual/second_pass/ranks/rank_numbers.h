// Numbers that each rank counts, draws or states for itself: positions, noise, and the rate of an
// optimizer.
#pragma once

#include "checker/gradual/blocks/numbering.h"
#include "checker/gradual/second_pass/part.h"
#include "checker/gradual/second_pass/ranks/draws.h"

#include "llvm/ADT/DenseSet.h"

namespace spmd::checker {

class RankNumbers : public SecondPassPart {
public:
  RankNumbers(WalkState &state, CurrentInst &now)
      : SecondPassPart(state, now),
        numbering_(program_, gradual_.cuts().positions(), gradual_.by_kinds()),
        draws_(gradual_.cuts().positions()) {}

  void judge_rate(ir::InstId id, const rules::Application &app);
  void judge_positions(ir::InstId id, const rules::Application &app,
                       llvm::ArrayRef<ir::ValueId> results);
  // What all ranks have drawn by one key, beside a dimension of which each has its own block.
  void judge_draws(ir::InstId id, const rules::Application &app,
                   llvm::ArrayRef<ir::ValueId> results);
  // What numbers a dimension, or was drawn for it, is not cut there. `before`: the type as its rule
  // has it.
  void keep(ir::ValueId value, const ir::Type &before, ir::Type &type) const;
  // Whether a value numbers a dimension, or was drawn for it.
  bool has_own(ir::ValueId value, unsigned dim) const {
    return numbering_.numbers(value, dim) || draws_.are_drawn(value, dim);
  }

private:
  Numbering numbering_;
  Draws draws_;
  llvm::DenseSet<uint32_t> reported_; // values that were reported as such numbers
};

} // namespace spmd::checker
