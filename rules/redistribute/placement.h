// To what types the operands of one op are brought where it does not accept them as they are: the
// cheapest of those that its factors name (rules/README.md, "Implicit redistribution").
#pragma once

#include "rules/apply.h"
#include "rules/redistribute/plan.h"

namespace spmd::rules::redistribute {

// What an op is given instead of its operands.
struct Placement {
  // Per tensor of the application; its own type where it stays. R|I where a move makes an axis
  // replicated: uses decide.
  llvm::SmallVector<ir::TypeId, 4> types;
  ir::AttrsId attrs; // with the sums over ranks that the op states then (`partial`)
  // Of all moves together, R counted for R|I; the same tensor brought to the same type counts once.
  uint64_t price = 0;
  uint32_t collectives = 0;
};

// A value as it is after a move; none of its extents where they do not follow.
TensorInfo moved_to(ir::Program &program, const TensorInfo &value, ir::TypeId target);

class Placer {
public:
  Placer(ir::Program &program, Rules &rules, Planner &planner)
      : program_(program), rules_(rules), planner_(planner) {}

  // True if the op is an equation, and refuses its operands: by a rule, or by the type that is
  // declared of its result.
  bool refuses(const Application &app, const Outcome &outcome) const;
  // `values`: which tensor each operand is; equal ones are moved together. `fixed`: operands that
  // must stay, since they are written in place. None if no combination is accepted.
  std::optional<Placement> place(const Application &app, const Outcome &refused,
                                 llvm::ArrayRef<ir::ValueId> values, llvm::ArrayRef<bool> fixed);

private:
  friend class Placing;
  ir::Program &program_;
  Rules &rules_;
  Planner &planner_;
};

} // namespace spmd::rules::redistribute
