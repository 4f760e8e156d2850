// Where gradients start and end in a program, found before the walk. Internal to the checker.
#pragma once

#include "checker/finding.h"

#include "ir/program.h"
#include "rules/apply.h"
#include "rules/boundary/op.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

class GradientBoundary {
public:
  GradientBoundary(const ir::Program &program, rules::Rules &rules);

  // The operand of the latest `backward` ahead of the instruction, in its body; none if there is
  // none.
  ir::ValueId root_before(ir::InstId id) const;
  // The root of the gradients that a program marks there: as above, else its only loss.
  ir::ValueId root_of(Place place) const;
  // True if a gradient with respect to the value ends in a parameter, or in an input for which one
  // is asked. Values of bodies are taken to.
  bool needs_gradient(ir::ValueId value);
  // The index of the parameter that a value is declared as.
  std::optional<uint32_t> param_of(ir::ValueId value) const;
  // True if a `step` or an output names the parameter: its contract is checked there.
  bool is_stepped(ir::ValueId param) const { return stepped_.count(param.index); }
  bool is_asked(ir::ValueId value) const { return llvm::is_contained(asked_, value); } // by `grad`

private:
  void note(ir::InstId id, rules::Boundary op);

  const ir::Program &program_;
  std::vector<std::pair<ir::InstId, ir::ValueId>> roots_; // in program order
  std::vector<uint32_t> starts_;                          // first instructions of bodies
  llvm::DenseMap<uint32_t, uint32_t> params_;             // by value
  llvm::DenseSet<uint32_t> stepped_;
  std::vector<ir::ValueId> asked_; // operands of `grad`
  ir::ValueId loss_;
  std::vector<bool> needs_gradient_; // by value; empty: not asked yet
};

} // namespace spmd::checker
