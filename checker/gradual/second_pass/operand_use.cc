// What an operation overwrites, or only takes the shape of, says nothing of its results.
#include "checker/gradual/second_pass/operand_use.h"

#include "checker/program_queries.h"

#include "rules/bind.h"
#include "rules/transitions/call.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Type;

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

// As many numbers as a rank has of something: of which dimension, and so how many all ranks have,
// is open where its cut is.
void OperandUse::doubt_extents(const rules::Application &app, const rules::Slot *like) {
  for (uint32_t i = 0; like && i < like->count && like->first + i < app.args.size(); ++i) {
    const rules::TensorInfo &arg = app.args[like->first + i];
    const Type &type = app.type(arg);
    if (!arg.shape.valid() || !program_.shapes[arg.shape].dims.empty())
      now_.open |= type.unknown | (type.of(ir::Kind::Varying) - type.sharded());
  }
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
    for (uint8_t operand : shapes) {
      add((*binding)[operand]);
      if (app.op.row->constant != rules::OpDef::Constant::No)
        doubt_extents(app, (*binding)[operand]);
    }
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

void OperandUse::take_stretched(const rules::Application &app,
                                llvm::function_ref<bool(ir::ValueId, unsigned)> numbers) {
  if (app.op.form != rules::OpForm::Equation)
    return;
  const CutPositions &positions = gradual_.cuts().positions();
  const llvm::ArrayRef<ir::ValueId> values = state_.operands.values;
  for (size_t j = 0; j < app.args.size() && j < values.size(); ++j) {
    const ir::Type &block = app.type(app.args[j]);
    for (AxisId axis : block.sharded()) {
      const auto cls = positions.in_front(values[j], *block.dim(axis));
      for (size_t i = 0; cls && i < values.size(); ++i) {
        Type type = app.type(app.args[i]);
        if (type.mesh() != block.mesh() || !type.same_on_all_ranks().contains(axis))
          continue;
        for (const CutPositions::Found &each : positions.of(values[i]))
          if (each.cls == cls && each.at.outer == 1 &&
              gradual_.is_broadcast_along(values[i], each.at.dim) &&
              !numbers(values[i], each.at.dim)) {
            cut(type, axis, each.at.dim);
            state_.args[i].type = state_.intern(type);
          }
      }
    }
  }
}

void OperandUse::doubt_single_rows(const rules::Application &app) {
  if (app.op.form != rules::OpForm::Equation)
    return;
  const llvm::ArrayRef<ir::ValueId> values = state_.operands.values;
  const size_t count = std::min(app.args.size(), values.size());
  for (size_t i = 0; i < count; ++i) {
    const ir::Param *param = program_.find_param(values[i]);
    if (!param || (param->role != ir::Role::Param && param->role != ir::Role::OptState))
      continue;
    const Type &stored = app.type(app.args[i]);
    const ir::ShapeId shape = app.args[i].shape;
    for (AxisId axis : shape.valid() ? stored.sharded() : AxisSet())
      for (size_t j = 0; j < count && program_.shapes[shape].dims[*stored.dim(axis)] == 1; ++j)
        if (const Type &other = app.type(app.args[j]);
            app.args[j].shape == shape && other.mesh() == stored.mesh() &&
            other.same_on_all_ranks().contains(axis) &&
            !gradual_.is_broadcast_along(values[j], *stored.dim(axis)))
          now_.open |= axis;
  }
}

bool OperandUse::has_whole(ir::ValueId value, const Type &type, CutPositions::Class cls) const {
  return llvm::any_of(gradual_.cuts().positions().of(value), [&](const CutPositions::Found &each) {
    return each.cls == cls && each.at.outer == 1 && ir::shards_of(type, each.at.dim).empty();
  });
}

void OperandUse::take_slots(const rules::Application &app) {
  if (app.op.form != rules::OpForm::Equation || slots_.empty())
    return;
  const CutPositions &positions = gradual_.cuts().positions();
  const llvm::ArrayRef<ir::ValueId> values = state_.operands.values;
  const size_t count = std::min(app.args.size(), values.size());
  for (size_t j = 0; j < count; ++j) {
    Type type = app.type(app.args[j]);
    for (AxisId axis : type.sharded()) {
      const auto cls = positions.in_front(values[j], *type.dim(axis));
      const auto slots = cls ? slots_.find(*cls) : slots_.end();
      if (slots == slots_.end() || !slots->second.axes.contains(axis) ||
          sent_away_.contains(values[j].index))
        continue;
      for (size_t i = 0; i < count; ++i) {
        const Type &other = app.type(app.args[i]);
        if (other.mesh() != type.mesh() || !other.sharded().contains(axis) ||
            !result_.proved[values[i].index].contains(axis))
          continue;
        const bool numbered = has_whole(values[i], other, *cls);
        // What rows and what their slots hold make together is of the rank's own slots.
        if (!numbered && positions.in_front(values[i], *other.dim(axis)) != slots->second.rows)
          continue;
        type.set_kind(axis, ir::Kind::Replicate);
        type.renumber_shard_orders();
        state_.args[j].type = state_.intern(type);
        (numbered ? now_.slots : now_.own) |= axis;
        break;
      }
    }
  }
}

// Where all slots were added up, rows are left that no slot numbers.
void OperandUse::find_left_slots(ir::ValueId result, const Type &type) {
  const CutPositions &positions = gradual_.cuts().positions();
  for (const auto &[cls, slots] : slots_)
    for (ir::ValueId operand : state_.operands.values)
      if (positions.has(operand, cls) && !positions.has(result, cls))
        now_.slots |= slots.axes & type.sharded();
}

// Rows are added up into slots that a rank counts itself: the result is cut by these, and not a sum
// over ranks.
void OperandUse::learn_slots(const rules::ResolvedOp &op, ir::ValueId result, const Type &type) {
  const bool away = llvm::any_of(
      state_.operands.values, [&](ir::ValueId value) { return sent_away_.contains(value.index); });
  if (away != (op.transition == rules::TransitionOp::AllToAll))
    sent_away_.insert(result.index);
  if (op.form != rules::OpForm::Equation)
    return;
  const CutPositions &positions = gradual_.cuts().positions();
  const AxisSet own = result_.own[result.index] & result_.proved[result.index];
  for (AxisId axis : type.sharded() & own) {
    const auto cls = positions.in_front(result, *type.dim(axis));
    for (size_t i = 0; cls && i < state_.operands.values.size(); ++i) {
      const ir::ValueId value = state_.operands.values[i];
      const Type &of = program_.types[result_.types[value.index]];
      if (of.mesh() != type.mesh() || !of.sharded().contains(axis) || !has_whole(value, of, *cls))
        continue;
      const auto rows = positions.in_front(value, *of.dim(axis));
      if (!rows || positions.has(result, *rows))
        continue;
      Slots &slots = slots_.try_emplace(*cls, Slots{{}, *rows}).first->second;
      if (slots.rows == *rows)
        slots.axes |= axis;
    }
  }
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
