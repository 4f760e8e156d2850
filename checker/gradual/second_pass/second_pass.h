// The second pass of a program without declarations (gradual.h): what is known of an instruction
// beyond what its rule says of whole tensors, which findings hold whatever is unknown, and what is
// proved. The walk calls it at each instruction; where the program declares its types there is
// none. This is the order of the steps; parts.h lists who takes them.
#pragma once

#include "checker/gradual/second_pass/certainty.h"
#include "checker/gradual/second_pass/operand_use.h"
#include "checker/gradual/second_pass/proof.h"
#include "checker/gradual/second_pass/result_cuts.h"

namespace spmd::checker {

class SecondPass final : public Inference {
public:
  explicit SecondPass(WalkState &state); // its result has the first pass

  void declare(ir::ValueId value, const ir::Type &type) override;
  ir::AxisSet drifted(const ir::Param &buffer, const ir::Type &type) const override;
  ir::Type with_cuts(ir::ValueId value, const ir::Type &type) const override {
    return gradual_.known(value, type, {});
  }

  void begin(const ir::Inst &inst, const rules::ResolvedOp &op) override;
  void bind(const ir::Inst &inst, const rules::Application &app) override;
  std::optional<rules::Outcome> restated(const ir::Inst &inst,
                                         const rules::Application &app) override;
  void judge(ir::InstId id, const rules::Application &app) override;
  void complete(ir::InstId id, const ir::Inst &inst, uint32_t index, ir::Type &type) override;

  bool may_be_scaled_later(ir::InstId id) const override {
    return parts_.gradients.is_of_own_block(id);
  }
  bool admits(Place place, rules::Violation &violation) override {
    return certainty_.admits(place, violation);
  }
  bool stands_on_inference(Place place, const rules::Violation &violation) const override {
    return gradual_.stands_on_inference(place, violation);
  }

private:
  void complete_scale(ir::InstId id, ir::Type &type);

  WalkState &state_;
  ir::Program &program_;
  const Gradual &gradual_;
  Parts parts_;
  OperandUse operands_;
  ResultCuts cuts_;
  Proof proof_;
  Certainty certainty_;
};

} // namespace spmd::checker
