// Data of ranks and parts of it.
#include "checker/gradual/second_pass/ranks/data_origins.h"

#include "checker/walk/gradients/backward_slice.h"

#include "rules/apply.h"
#include "rules/boundary/claims.h"
#include "rules/shards/remesh.h"
#include "rules/transitions/call.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Type;
using ir::ValueId;

// The part that a rank takes of its own block is no block of the whole: the other parts of it are
// nobody's. Of a batch it is as good as any rows. A step that keeps the extents takes nothing.
void DataOrigins::judge_part_of_own(InstId id, const rules::Application &app) {
  const ir::Inst &inst = program_.insts[id];
  if (app.op.transition != rules::TransitionOp::Convert || app.args.size() != 1 ||
      inst.result_count != 1 || app.args[0].shape == result_.shapes[inst.first_result.index])
    return;
  const Type &type = app.type(app.args[0]);
  for (AxisId axis : type.sharded() & rules::named_axes(app))
    if (!is_data(state_.operands.values[0]) || type.dim(axis) != 0U)
      now_.open |= axis;
}

// The axes along which all ranks have written the same into rows of their batches, wherever in
// these: it is a part of their data. Not where they share out data that all have, which may be
// positions of one sequence.
AxisSet DataOrigins::written_rows(InstId id, const Type &type) const {
  const llvm::ArrayRef<ValueId> values = state_.operands.values;
  if (state_.rules.resolve(program_.insts[id].op).boundary != rules::Boundary::Alias ||
      values.size() != 2 || !data_.contains(values[0].index) || !data_.contains(values[1].index))
    return {};
  AxisSet axes;
  // The operand is what is left of all writes by now; the value, what was written last.
  for (AxisId axis :
       program_.types[result_.types[values[0].index]].same_on_all_ranks() & type.sharded())
    if (type.dim(axis) == 0U)
      axes |= axis;
  return axes - shared_out_;
}

void DataOrigins::declare(ValueId value) {
  // A constant of which it is stated how it is cut is no batch: its blocks are those of one whole.
  const ir::Param *param = program_.find_param(value);
  const ir::TypeId stated = program_.values[value].declared;
  const bool is_block = stated.valid() && !program_.types[stated].sharded().empty();
  if (param && (param->role == ir::Role::Input || (param->role == ir::Role::Const && !is_block)))
    data_.insert(value.index);
  if (param && param->role == ir::Role::Buffer)
    buffers_.insert(value.index);
}

void DataOrigins::judge(InstId id, const rules::Application &app) {
  // A buffer is that of the rank that hands out its own, whatever the others had.
  if (app.op.transition == rules::TransitionOp::Broadcast &&
      llvm::all_of(state_.operands.values,
                   [&](ValueId operand) { return buffers_.contains(operand.index); }))
    now_.open -= rules::communicated_axes(app);
  if (app.op.transition == rules::TransitionOp::Convert && !state_.operands.values.empty() &&
      is_data(state_.operands.values[0]))
    shared_out_ |= rules::communicated_axes(app);
  judge_part_of_own(id, app);
}

void DataOrigins::keep(const ir::Inst &inst, ValueId value) {
  if (is_forward(inst) &&
      llvm::all_of(state_.operands.values, [&](ValueId operand) { return is_data(operand); }))
    data_.insert(value.index);
  const rules::ResolvedOp &op = state_.rules.resolve(inst.op);
  if ((moves_elements(op) || (op.row && op.row->factors == rules::cat_factors)) &&
      llvm::all_of(state_.operands.values,
                   [&](ValueId operand) { return buffers_.contains(operand.index); }))
    buffers_.insert(value.index);
}

} // namespace spmd::checker
