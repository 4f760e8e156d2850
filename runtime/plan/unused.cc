// Which ops do something without results.
#include "runtime/plan/unused.h"

namespace spmd::runtime {

static bool acts_without_results(rules::Boundary op) {
  using enum rules::Boundary;
  switch (op) {
  case Step:
  case Store:
  case Report:
  case Send:
  case Recv:
  case Backward:
  case Grad:
  case Diverge:
  case Unlike:
    return true;
  default:
    return false;
  }
}

bool is_unused(const ir::Inst &inst, const rules::ResolvedOp &op) {
  if (inst.result_count != 0)
    return false;
  switch (op.form) {
  case rules::OpForm::Equation:
  case rules::OpForm::Transition:
    return true;
  case rules::OpForm::Boundary:
    return !acts_without_results(op.boundary);
  default: // bodies have steps of their own
    return false;
  }
}

} // namespace spmd::runtime
