// What an operation overwrites, or only takes the shape of, says nothing of its results.
#include "checker/gradual/second_pass/operand_use.h"

#include "checker/program_queries.h"

#include "rules/bind.h"
#include "rules/transitions/call.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::InstId;

// A part of the rows that a rank has is its block of what all ranks take so of theirs: the rows of
// a batch may stand in any order. Of other dimensions the order is not known to be right.
void OperandUse::find_parts(const rules::Application &app, const ZeroBlocks &zeros) {
  if (!app.op.row || app.op.row->own_dims != rules::OpDef::OwnDims::Proportional ||
      now_.takes_block)
    return;
  for (const rules::TensorInfo &arg : app.args)
    now_.parts |= app.type(arg).sharded();
  for (size_t i = 0; i < app.args.size(); ++i)
    for (AxisId axis : app.type(app.args[i]).sharded() | now_.parts)
      if (app.type(app.args[i]).dim(axis) != 0U && !zeros.contains(state_.operands.values[i]))
        now_.parts -= axis;
}

void OperandUse::find_unread(const rules::Application &app) {
  auto add = [&](const rules::Slot *slot) {
    for (uint32_t i = 0; slot && i < slot->count; ++i)
      now_.unread.insert(slot->first + i);
  };
  for (llvm::StringRef name : {"out", "in_splits", "out_splits"})
    add(app.named(name));
  if (app.op.form != rules::OpForm::Equation || !app.op.row)
    return;
  const rules::Equation &row = app.op.row->equation.equation;
  llvm::SmallVector<uint8_t, 4> shapes; // operands of the row
  for (uint8_t operand = 0; operand < row.operand_count; ++operand)
    if (!row.reads(operand))
      shapes.push_back(operand);
  if (shapes.empty() && !llvm::is_contained(app.op.order, rules::ResolvedOp::kIgnored))
    return;
  rules::OperandMismatch mismatch;
  if (std::optional<rules::Binding> binding = rules::bind_operands(app, row, mismatch)) {
    for (uint8_t operand : shapes)
      add((*binding)[operand]);
    llvm::for_each(binding->ignored, add); // what a forward saves, and the row computes again
  }
}

void OperandUse::begin(const ir::Inst &inst) {
  now_ = {};
  const InstId forward = inst.bwd_of.valid() ? defining_inst(program_, inst.bwd_of) : InstId();
  now_.takes_block =
      forward.valid() &&
      state_.rules.resolve(program_.insts[forward].op).transition == rules::TransitionOp::Convert;
}

// What is overwritten as a whole is what it is overwritten with: temporary storage is of no kind,
// and what the storage of a parameter keeps is judged where it is written (effects.h).
void OperandUse::take_overwritten() {
  if (now_.unread.size() != 1 || state_.args.size() != 2)
    return;
  rules::TensorInfo &target = state_.args[*now_.unread.begin()];
  const rules::TensorInfo &source = state_.args[1 - *now_.unread.begin()];
  if (target.shape == source.shape &&
      program_.types[target.type].mesh() == program_.types[source.type].mesh())
    target.type = source.type;
}

} // namespace spmd::checker
