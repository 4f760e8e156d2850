// Which instructions have neither results nor effects.
#include "runtime/plan/unused.h"

#include "rules/boundary/op.h"

namespace spmd::runtime {

bool is_unused(const ir::Inst &inst, const rules::ResolvedOp &op) {
  if (inst.result_count != 0)
    return false;
  switch (op.form) {
  case rules::OpForm::Equation:
  case rules::OpForm::Transition:
    return true;
  case rules::OpForm::Boundary:
    return !rules::acts(op.boundary);
  default: // bodies have steps of their own
    return false;
  }
}

} // namespace spmd::runtime
