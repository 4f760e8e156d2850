// What the walk asks at each instruction of a program that declares no types: what is known beyond
// declarations, and which findings hold in spite of what is not known. Internal to the checker.
#pragma once

#include "checker/finding.h"

#include "rules/apply.h"

#include <memory>

namespace spmd::checker {

class WalkState;

class Inference {
public:
  virtual ~Inference() = default;

  // Of each declared value.
  virtual void declare(ir::ValueId value, const ir::Type &type) = 0;
  // The axes along which ranks have come to different values of a buffer by which they train.
  virtual ir::AxisSet drifted(const ir::Param &buffer, const ir::Type &type) const = 0;
  // With what is known of a declared value and no type can state.
  virtual ir::Type with_cuts(ir::ValueId value, const ir::Type &type) const = 0;

  // Called for each instruction in this order, with its operands in the state of the walk. begin()
  // and bind() may change how the rule sees them: begin() before operands are bound to the row,
  // bind() after.
  virtual void begin(const ir::Inst &inst, const rules::ResolvedOp &op) = 0;
  virtual void bind(const ir::Inst &inst, const rules::Application &app) = 0;
  // What the results are if it only says of per-rank values what they are to each other; none: the
  // rule says it.
  virtual std::optional<rules::Outcome> restated(const ir::Inst &inst,
                                                 const rules::Application &app) = 0;
  virtual void judge(ir::InstId id, const rules::Application &app) = 0;
  // `type`: of the result at this index, as its rule and its declaration have it.
  virtual void complete(ir::InstId id, const ir::Inst &inst, uint32_t index, ir::Type &type) = 0;

  // Whether a gradient that an instruction makes may be of another scale than its value asks for,
  // since the script may multiply it further on.
  virtual bool may_be_scaled_later(ir::InstId id) const = 0;
  // Whether a finding does not depend on what is unknown, and is no repetition.
  virtual bool admits(Place place, rules::Violation &violation) = 0;
  // Whether it depends on a cut that nobody stated.
  virtual bool stands_on_inference(Place place, const rules::Violation &violation) const = 0;
};

// None where nothing is known beyond declarations.
using InferenceMaker = std::unique_ptr<Inference> (*)(WalkState &state);

} // namespace spmd::checker
