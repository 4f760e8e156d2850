// What a program states of a result is held against what follows; where nothing follows it is
// believed. Internal to the checker.
#pragma once

#include "checker/walk/state.h"
#include "checker/walk/undecided/undecided_kinds.h"

#include "rules/boundary/claims.h"

#include "llvm/ADT/DenseSet.h"

namespace spmd::checker {

class Claims {
public:
  Claims(WalkState &state, UndecidedKinds &undecided)
      : state_(state), program_(state.program), result_(state.result), undecided_(undecided) {}

  // `type`: what follows; then what is known with the claim.
  void judge(ir::InstId id, ir::ValueId value, ir::Type &type, ir::TypeId declared,
             rules::Spec spec);
  void judge_shape(ir::InstId id, ir::ValueId value, ir::ShapeId claimed, ir::ShapeId found);
  void judge_sizes(ir::InstId id, ir::ValueId value, const ir::Type &type);
  void judge_whole(ir::InstId id, const ir::Type &type, const rules::TensorInfo &found,
                   ir::ShapeId stated, ir::AxisSet joined);

  // Of what leaves a region, on the axes of the region.
  void restate_scale(ir::InstId id, ir::ValueId result, ir::Type &type, const ir::Type &claimed,
                     llvm::ArrayRef<rules::TensorInfo> args, ir::AxisSet own);
  void take_as_addends(ir::InstId id, ir::ValueId value, ir::Type &type, const ir::Type &claimed,
                       ir::AxisSet region);
  // True if each rank of the axes has as much of a result as the others: no operand differs in size
  // between them, and nothing that runs divides by stated lengths.
  bool gives_even(ir::InstId id, llvm::ArrayRef<rules::TensorInfo> args, ir::AxisSet axes);

private:
  void judge_scale(ir::InstId id, ir::ValueId value, ir::Type &type, const ir::Type &claimed,
                   ir::AxisSet region);
  bool scale_claim_differs(ir::InstId id, ir::ValueId value, const ir::Type &type,
                           ir::ScaleId needed, ir::ScaleId claimed);
  bool divides_evenly(ir::InstId id, llvm::SmallDenseSet<uint32_t, 8> &bodies);

  WalkState &state_;
  ir::Program &program_;
  CheckResult &result_;
  UndecidedKinds &undecided_;
};

} // namespace spmd::checker
