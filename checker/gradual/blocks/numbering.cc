// Follows what is counted through the rows that compute with it.
#include "checker/gradual/blocks/numbering.h"

#include "rules/factors/factors.h"
#include "rules/ops/op.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::ValueId;
using rules::Computes;

bool counts_up(const rules::ResolvedOp &op) {
  return op.alias && op.alias->factors == rules::arange_factors;
}

const Numbering::Classes *Numbering::numbers(ValueId value) const {
  auto found = counted_.find(value.index);
  return found == counted_.end() ? nullptr : &found->second;
}

bool Numbering::has(ValueId value, CutPositions::Class cls) const {
  return llvm::any_of(positions_.of(value), [&](const CutPositions::Found &each) {
    return each.at.outer == 1 && each.cls == cls;
  });
}

// An index names elements of the block that it picks them from: there it may begin at 0.
static bool picks(const rules::ResolvedOp &op) {
  return op.computes(Computes::Index) || op.computes(Computes::Gather) ||
         op.computes(Computes::Put);
}

llvm::SmallVector<Numbering::Repeated, 1>
Numbering::repeated(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                    llvm::ArrayRef<ValueId> results) const {
  llvm::SmallVector<Repeated, 1> found;
  if (counted_.empty() || app.op.form != rules::OpForm::Equation || picks(app.op) ||
      llvm::any_of(results, [&](ValueId each) { return answers(each); }))
    return found;
  for (uint32_t i = 0; i < operands.size() && i < app.args.size(); ++i) {
    const Classes *classes = numbers(operands[i]);
    if (!classes)
      continue;
    const ir::Type &type = app.type(app.args[i]);
    const AxisSet same = type.replicated() | type.of(ir::Kind::Invariant) | type.either();
    AxisSet axes;
    for (uint32_t j = 0; j < operands.size() && j < app.args.size(); ++j) {
      const ir::Type &other = app.type(app.args[j]);
      if (other.mesh() != type.mesh() || numbers(operands[j]))
        continue;
      for (ir::AxisId axis : other.sharded() & same)
        if (std::optional<CutPositions::Class> cls =
                positions_.in_front(operands[j], *other.dim(axis));
            cls && llvm::is_contained(*classes, *cls))
          axes |= axis;
    }
    if (axes)
      found.push_back({i, axes});
  }
  return found;
}

// A question about numbers, such as which of two is greater, has the same answer wherever both
// begin.
bool Numbering::answers(ValueId value) const {
  const ir::ShapeId shape = checked_.shapes[value.index];
  return shape.valid() && program_.shapes[shape].dtype == ir::DType::Bool;
}

void Numbering::learn(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                      llvm::ArrayRef<ValueId> results) {
  if (app.op.form != rules::OpForm::Equation || results.empty())
    return;
  Classes classes;
  const ir::AttrValue *step = app.attr("step");
  if (counts_up(app.op) &&
      (!step || (step->form == ir::AttrForm::Integer && step->as_integer() == 1))) {
    if (std::optional<CutPositions::Class> cls = positions_.in_front(results[0], 0))
      classes.push_back(*cls);
  } else if (!app.op.computes(Computes::Difference) && !picks(app.op)) {
    for (ValueId operand : operands)
      if (const Classes *more = numbers(operand))
        llvm::append_range(classes, *more);
  }
  if (classes.empty())
    return;
  for (size_t i = 0; i < results.size(); ++i) {
    if (answers(results[i]))
      continue;
    Classes kept;
    for (CutPositions::Class cls : classes)
      if (has(results[i], cls) && !llvm::is_contained(kept, cls))
        kept.push_back(cls);
    if (!kept.empty())
      counted_[results[i].index] = std::move(kept);
  }
}

} // namespace spmd::checker
