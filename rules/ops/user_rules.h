// Typing rules that a trace brings for ops that are not ours: an equation, or the op that behaves
// the same.
#pragma once

#include "rules/application.h"

#include "ir/input/input.h"

#include "llvm/ADT/DenseMap.h"

namespace spmd::rules {

// Malformed equations, unknown models, and rules for ops of ours: input errors `trace-rule`.
std::vector<ir::InputError> verify_rules(const ir::Program &program);

class UserRules {
public:
  explicit UserRules(ir::Program &program) : program_(program) {}

  // The op that a rule of the trace makes of a spelling. `row` receives the row of an equation and
  // must outlive the result. None if the trace has no rule for it, or a malformed one.
  std::optional<ResolvedOp> resolve(ir::OpNameId spelling, std::unique_ptr<OpDef> &row);

private:
  const ir::UserRule *find(ir::OpNameId spelling);
  ir::Program &program_;
  llvm::DenseMap<uint32_t, size_t> by_op_; // the first rule of each op, as far as they are entered
  size_t entered_ = 0;
};

} // namespace spmd::rules
