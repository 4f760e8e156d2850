// What the parts of the second pass share: the walk, what the first pass found, and what all of
// them have noted of the instruction that is being typed. Each part keeps what it alone follows.
#pragma once

#include "checker/gradual/gradual.h"
#include "checker/walk/state.h"

#include "llvm/ADT/SmallSet.h"

namespace spmd::checker {

struct CurrentInst {
  ir::AxisSet reported;    // axes on which it has a finding
  ir::AxisSet open;        // axes on which something that a finding depends on is unknown
  bool scale_open = false; // the scale of its results is not known
  llvm::SmallSet<uint32_t, 4> unread; // operands, by index
  bool takes_block = false; // it is the backward of a convert, by which a rank took a block
  ir::AxisSet parts;        // along which it takes or joins rows that a rank has
  ir::AxisSet own;          // along which it numbers what a rank has
  ir::AxisSet slots;        // along which what a rank's own slots hold meets their numbers
};

// The prefixes of the steps of a part, in the order in which SecondPass calls them: begin() clears
// what was noted of the last instruction; take_*() change how the rule sees operands, before it is
// applied; find_*() only note; judge_*() report, or add to CurrentInst::open; keep_*() and cut_*()
// change the type of a result after its rule; learn() and follow() remember a value for later
// instructions.
class SecondPassPart {
public:
  SecondPassPart(WalkState &state, CurrentInst &now)
      : state_(state), program_(state.program), result_(state.result),
        gradual_(*state.result.gradual), now_(now) {}

protected:
  ir::AxisSet unknown_operands() const;
  // The axes that an attribute names.
  ir::AxisSet axes_in(const ir::Inst &inst, llvm::StringRef key) const;
  bool is_scalar(ir::ValueId value) const { return is_scalar(program_.values[value].shape); }
  bool is_scalar(ir::ShapeId shape) const;
  bool is_float(ir::ValueId value) const;
  // Kind, cut and scale are known there.
  ir::AxisSet known_axes(const ir::Type &type) const;
  // What the bodies of a call return for this result of it.
  llvm::SmallVector<ir::ValueId, 2> returned_as(ir::InstId id, ir::ValueId value) const;
  // As the rules take it, with the operands as they are seen by now.
  rules::Application application(const ir::Inst &inst, const rules::ResolvedOp &op) const {
    return {program_, op, inst.attrs, inst.context, state_.operands.slots, state_.args, {}};
  }

  WalkState &state_;
  ir::Program &program_;
  CheckResult &result_;
  const Gradual &gradual_;
  CurrentInst &now_;
};

} // namespace spmd::checker
