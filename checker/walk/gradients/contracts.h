// The boundary that gradients cross: loss roots, contracts of parameters, the optimizer, declared
// gradients of functions. Internal to the checker.
#pragma once

#include "checker/walk/gradients/gradient_boundary.h"
#include "checker/walk/state.h"

#include "rules/boundary/contract.h"

namespace spmd::checker {

class GradientContracts {
public:
  explicit GradientContracts(WalkState &state)
      : state_(state), program_(state.program), result_(state.result),
        boundary_(state.program, state.rules), contracts_(state.program.params.size()) {}

  GradientBoundary &boundary() { return boundary_; }

  // The contract of a parameter, by its type as it was declared; a value that is none needs a
  // gradient of its own type.
  rules::Contract contract(ir::ValueId value);
  void declare(uint32_t param);
  void resume(); // when types are known

  // Puts beside the operands what the rule needs of the program.
  void put_operands(ir::InstId id, rules::Boundary op);
  // What has no derivative may take values that no parameter is behind. True if it depends on which
  // values the operands are.
  bool cut_gradients(const ir::Inst &inst);
  // After the rule: the gradient that a contract states, and the scales that a root decides.
  void judge_results(ir::InstId id, rules::Boundary op, const rules::Outcome &outcome);
  // An output that is the gradient of a parameter is what the optimizer reads.
  void judge_output(uint32_t index, const ir::Type &type);
  // The gradients that functions declare to return, against the types of their parameters.
  void judge_functions();
  // Where the program ends with a gradient that nothing reads, the optimizer reads it behind the
  // end: what its contract promises of it must be true by then.
  void judge_unread();

  // A root decides the scales of all gradients: of those that a contract speaks of, and no `grad`
  // asks for.
  void scales_at_root(Place place, const ir::Type &root);
  // The loss root as the gradients of it see it: nothing is known on axes where it is none.
  const ir::Type &root_type(ir::ValueId root);

private:
  WalkState &state_;
  ir::Program &program_;
  CheckResult &result_;
  GradientBoundary boundary_;
  std::vector<std::optional<rules::Contract>> contracts_; // per parameter, as far as needed
  struct Root {
    ir::ValueId value;
    ir::TypeId known_as;
    ir::Type type; // as gradients see it
  } root_;         // the last one that was asked for
};

} // namespace spmd::checker
