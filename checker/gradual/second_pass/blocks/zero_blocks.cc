// Zeros have the type and the scale of what they are put together with.
#include "checker/gradual/second_pass/blocks/zero_blocks.h"

#include "rules/bind.h"
#include "rules/shapes/attrs.h"
#include "rules/shards/remesh.h"
#include "rules/violations/operands.h"

#include "ir/claims.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::Type;
using ir::ValueId;
using rules::Computes;

// Blocks of zeros are of the scale of what they are put together with.
void ZeroBlocks::scale_zeros() {
  if (blocks_.empty())
    return;
  auto is_zero = [&](size_t i) { return contains(state_.operands.values[i]); };
  std::optional<ir::ScaleId> scale;
  for (size_t i = 0; i < state_.args.size() && !scale; ++i)
    if (ir::ShapeId shape = state_.args[i].shape;
        !is_zero(i) && shape.valid() && ir::differentiable(program_.shapes[shape].dtype))
      scale = program_.types[state_.args[i].type].scale;
  for (size_t i = 0; i < state_.args.size() && scale; ++i)
    if (is_zero(i)) {
      Type type = program_.types[state_.args[i].type];
      type.scale = *scale;
      state_.args[i].type = state_.intern(type);
    }
}

// Memory that was cleared, and to which something is added, holds that alone: zeros are of its
// type. So are those that something was multiplied with, and those that other ranks have in the
// place of what one rank has.
void ZeroBlocks::take_cleared(const rules::ResolvedOp &op,
                              llvm::function_ref<bool(ValueId)> chooses_one_rank) {
  const bool chooses =
      op.row && !op.row->chooses.empty() && llvm::any_of(state_.operands.values, chooses_one_rank);
  if (!chooses && !(op.computes(Computes::Add) && state_.args.size() == 2))
    return;
  llvm::SmallVector<size_t, 2> both;
  for (size_t i = 0; i < state_.args.size(); ++i)
    if (const ir::ShapeId shape = state_.args[i].shape;
        !chooses || (shape.valid() && ir::differentiable(program_.shapes[shape].dtype)))
      both.push_back(i);
  if (both.size() != 2 || state_.args[both[0]].shape != state_.args[both[1]].shape)
    return;
  auto cleared = [&](size_t i) {
    const Type &type = program_.types[state_.args[i].type];
    return contains(state_.operands.values[i]) ||
           (type.zero() & type.same_on_all_ranks())
               .contains(program_.meshes[type.mesh()].typed_axes());
  };
  for (auto [zeros, other] : {std::pair(both[0], both[1]), std::pair(both[1], both[0])})
    if (cleared(zeros) && !cleared(other)) {
      state_.args[zeros].type = state_.args[other].type;
      cleared_ = state_.operands.values[zeros];
    }
}

// Zeros that a collective takes as blocks, such as the first state of a recurrence, are those of a
// whole.
void ZeroBlocks::take_stated(const rules::Application &app) {
  const ir::AttrValue *word = app.attr("src");
  if (app.op.form != rules::OpForm::Transition || app.args.size() != 1 || !word ||
      word->form != ir::AttrForm::Kind || word->as_kind().form != ir::WrittenKind::Form::Shard)
    return;
  Type type = app.type(app.args[0]);
  const ir::Shape *shape = app.shape(app.args[0]);
  const int dim = word->as_kind().dim;
  if (!shape || dim < 0 || unsigned(dim) >= shape->dims.size())
    return;
  for (AxisId axis : type.zero() & type.same_on_all_ranks() & rules::communicated_axes(app))
    cut(type, axis, unsigned(dim));
  state_.args[0].type = state_.intern(type);
}

// The backward of taking a block, as a join or by an op of its own: zeros stand in the place of the
// blocks of other ranks, so that it is an addend of the whole.
void ZeroBlocks::find_padded(const rules::Application &app) {
  padded_ = {};
  auto *factors = now_.takes_block && app.op.row ? app.op.row->factors : nullptr;
  if (factors != rules::cat_factors && factors != rules::slice_backward_factors)
    return;
  const rules::TensorInfo *block = nullptr;
  for (const rules::TensorInfo &arg : app.args)
    if (!app.type(arg).zero().contains(app.mesh().typed_axes())) {
      if (block)
        return;
      block = &arg;
    }
  const ir::Shape *shape = block ? app.shape(*block) : nullptr;
  const auto dims =
      shape ? rules::placed_dims(app, rules::DefaultDim::First, shape->dims.size()) : std::nullopt;
  if (!dims || dims->size() != 1)
    return;
  for (AxisId axis : app.type(*block).sharded())
    if (app.type(*block).dim(axis) == dims->front())
      padded_ |= axis;
  now_.open -= padded_;
}

// Whether zeros alone are there to be chosen.
bool ZeroBlocks::chooses_zeros(const ir::Inst &inst, const rules::ResolvedOp &op) const {
  const rules::Equation &row = op.row->equation.equation;
  rules::OperandMismatch ignored;
  const auto binding = rules::bind_operands(application(inst, op), row, ignored);
  bool zeros = binding.has_value();
  for (unsigned r = 0; r < row.ref_count && zeros; ++r) {
    const rules::Ref &ref = row.refs[r];
    if (ref.role != rules::RefRole::Value || ref.operand >= row.operand_count)
      continue;
    const rules::Slot *slot = (*binding)[ref.operand];
    zeros = slot && slot->form == rules::Slot::Form::Literal && rules::is_zero(slot->literal);
  }
  return zeros;
}

// A tensor that is made of the number 0 is of every kind and scale.
bool ZeroBlocks::makes_zero(const ir::Inst &inst) {
  const rules::ResolvedOp &op = state_.rules.resolve(inst.op);
  const rules::OpDef *row = op.row;
  if (op.computes(Computes::Mul)) // `+ 0.0 * unused.sum()`
    return llvm::any_of(state_.operands.slots, [](const rules::Slot &slot) {
      return slot.form == rules::Slot::Form::Literal && rules::is_zero(slot.literal);
    });
  if (row && !row->chooses.empty())
    return chooses_zeros(inst, op);
  if (!row || row->constant != rules::OpDef::Constant::Either)
    return false;
  for (llvm::StringRef name : {"s", "value", "fill_value"})
    if (const ir::AttrValue *value = program_.find(inst.attrs, name))
      return rules::is_zero(*value);
  return false;
}

void ZeroBlocks::keep(const ir::Inst &inst, ValueId value, AxisSet before, Type &type) {
  const AxisSet all = program_.meshes[type.mesh()].typed_axes();
  const rules::OpDef *row = state_.rules.resolve(inst.op).row;
  const bool zeros = before.contains(all) || (row && row->constant == rules::OpDef::Constant::Zero);
  if (zeros && type.of(Kind::Varying))
    blocks_.insert(value.index);
  if (makes_zero(inst))
    type.set_zero(all);
}

void ZeroBlocks::keep_padded(Type &type) const {
  type.drop_shards(padded_);
  type.set_kind(padded_, Kind::Partial);
}

} // namespace spmd::checker
