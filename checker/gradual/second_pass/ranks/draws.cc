// Follows what is drawn by a key through the rows that compute with it.
#include "checker/gradual/second_pass/ranks/draws.h"

#include "rules/ops/op.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::ValueId;
using rules::Computes;

// Bits that are a function of a key. A generator without one has a state on each rank, of which the
// program does not say whether ranks have the same.
static bool draws_by_key(const rules::ResolvedOp &op) {
  return op.variant() == rules::Variant::Bits;
}

// An order that is drawn, or an index, says where elements of a block go: each block may be
// shuffled in the same way.
static bool places(const rules::ResolvedOp &op) {
  return op.computes(Computes::Index) || op.computes(Computes::Gather) ||
         op.computes(Computes::IndexPut) || op.computes(Computes::ArgSort) ||
         op.computes(Computes::Embedding);
}

const Draws::Classes *Draws::classes(ValueId value) const {
  const auto found =
      value.valid() ? drawn_.find(value.index) : drawn_.end(); // a plain number: none
  return found == drawn_.end() ? nullptr : &found->second;
}

bool Draws::are_drawn(ValueId value, unsigned dim) const {
  const Classes *drawn = classes(value);
  const auto cls = drawn ? positions_.in_front(value, dim) : std::nullopt;
  return cls && llvm::is_contained(*drawn, *cls);
}

llvm::SmallVector<Draws::Repeated, 1> Draws::repeated(const rules::Application &app,
                                                      llvm::ArrayRef<ValueId> operands) const {
  llvm::SmallVector<Repeated, 1> found;
  if (drawn_.empty() || app.op.form != rules::OpForm::Equation || places(app.op))
    return found;
  for (uint32_t i = 0; i < operands.size() && i < app.args.size(); ++i) {
    const Classes *drawn = classes(operands[i]);
    if (!drawn)
      continue;
    const ir::Type &type = app.type(app.args[i]);
    AxisSet axes;
    for (uint32_t j = 0; j < operands.size() && j < app.args.size(); ++j) {
      const ir::Type &other = app.type(app.args[j]);
      if (other.mesh() != type.mesh())
        continue;
      for (ir::AxisId axis : other.sharded() & type.same_on_all_ranks())
        if (const auto cls = positions_.in_front(operands[j], *other.dim(axis));
            cls && llvm::is_contained(*drawn, *cls))
          axes |= axis;
    }
    if (axes)
      found.push_back({i, axes});
  }
  return found;
}

void Draws::learn(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                  llvm::ArrayRef<ValueId> results) {
  if (app.op.form != rules::OpForm::Equation || places(app.op))
    return;
  const bool made = draws_by_key(app.op);
  Classes found;
  for (ValueId operand : operands)
    if (const Classes *drawn = classes(operand))
      llvm::append_range(found, *drawn);
  if (!made && found.empty())
    return;
  for (ValueId result : results) {
    Classes kept;
    for (const CutPositions::Found &each : positions_.of(result))
      if (each.at.outer == 1 && (made || llvm::is_contained(found, each.cls)) &&
          !llvm::is_contained(kept, each.cls))
        kept.push_back(each.cls);
    if (!kept.empty())
      drawn_[result.index] = std::move(kept);
  }
}

} // namespace spmd::checker
