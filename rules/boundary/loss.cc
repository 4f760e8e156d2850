// Which axes of a value keep it from being a loss root.
#include "rules/boundary/loss.h"

#include "rules/violations/claims.h"

namespace spmd::rules {

llvm::SmallVector<Violation, 2> loss_violations(const ir::Program &, ir::ValueId value,
                                                const ir::Type &type) {
  llvm::SmallVector<Violation, 2> found;
  for (ir::Kind kind : {ir::Kind::Replicate, ir::Kind::Reduced, ir::Kind::Varying})
    if (ir::AxisSet axes = type.of(kind) - type.either())
      found.push_back(LossKind{value, {.kind = kind}, axes});
  return found;
}

} // namespace spmd::rules
