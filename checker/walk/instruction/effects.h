// In-place writes, names that a write has overtaken, and random draws into storage. Internal to the
// checker.
#pragma once

#include "checker/walk/gradients/recorded_gradients.h"
#include "checker/walk/state.h"
#include "checker/walk/undecided/undecided_kinds.h"

namespace spmd::checker {

class Effects {
public:
  Effects(WalkState &state, UndecidedKinds &undecided, RecordedGradients &gradients)
      : state_(state), program_(state.program), result_(state.result), undecided_(undecided),
        gradients_(gradients) {}

  // `alias new, old` gives what `old` shows now: what the rule is to take for the type of `new`.
  void derive(ir::InstId id);
  // Operands that are read although their storage was written since.
  void judge_stale(ir::InstId id);
  // What an instruction writes. `unknown_axes`: per result, the axes on which its storage was left
  // with another type.
  void write(ir::InstId id, const ir::Inst &inst, const rules::ResolvedOp &op,
             const rules::Outcome &outcome, llvm::MutableArrayRef<ir::AxisSet> unknown_axes);
  // True if what the instruction writes is its first operand, if any, and keeps its type whatever
  // else shows that storage.
  bool keep_types(const ir::Inst &inst, const rules::Outcome &outcome) const;

  // What was written, of a completed check.
  void resume(ir::InstId id);

private:
  // Memory of which nobody has said what it holds.
  bool is_empty(ir::ValueId value);
  bool is_part(ir::ValueId written, ir::ValueId old);
  ir::Type beside(const ir::Type &written, const ir::Type &before) const;
  ir::AxisSet left_with(ir::ValueId target, ir::ContextId context, const ir::Type &made) const;
  ir::AxisSet written(ir::InstId id, ir::ValueId target, uint32_t position, const ir::Type &made,
                      uint32_t result);
  void forget_others(ir::InstId id, ir::ValueId target, ir::AxisSet axes);
  ir::AxisSet drawn(ir::InstId id, uint32_t position, const ir::Type &before, const ir::Type &made,
                    ir::AxisSet bad);

  WalkState &state_;
  ir::Program &program_;
  CheckResult &result_;
  UndecidedKinds &undecided_;
  RecordedGradients &gradients_;
};

} // namespace spmd::checker
