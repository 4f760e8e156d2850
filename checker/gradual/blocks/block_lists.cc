// Follows lists of blocks from where they are split to where they are joined.
#include "checker/gradual/blocks/block_lists.h"

#include "checker/gradual/axis_size_numbers.h"
#include "checker/program_queries.h"
#include "checker/walk/gradients/backward_slice.h"

#include "rules/apply.h"
#include "rules/factors/factors.h"
#include "rules/ops/op.h"
#include "rules/shapes/attrs.h"
#include "rules/transitions/axes.h"
#include "rules/transitions/call.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::ValueId;

static size_t rank_of(const rules::Application &app, size_t arg) {
  const ir::Shape *shape = arg < app.args.size() ? app.shape(app.args[arg]) : nullptr;
  return shape ? shape->dims.size() : 0;
}

// The dimension that is named, of so many; the first where none is.
static std::optional<unsigned> dim_of(const rules::Application &app, size_t rank) {
  const auto dims = rules::placed_dims(app, rules::DefaultDim::First, rank);
  return dims && dims->size() == 1 ? std::optional(dims->front()) : std::nullopt;
}

// Whether the result is the operand that is read last, as it is.
static bool copies(const rules::Application &app) {
  return moves_elements(app.op) && (!app.op.row || !app.op.row->factors);
}

const BlockLists::Part *BlockLists::part(ValueId value) const {
  auto found = parts_.find(value.index);
  return found == parts_.end() ? nullptr : &found->second;
}

// What a collective makes of a tensor, or of its parts behind one another, along dimension 0.
std::optional<BlockLists::Part> BlockLists::collected(const rules::Application &app,
                                                      llvm::ArrayRef<ValueId> operands) const {
  if (operands.empty() || app.args.empty())
    return std::nullopt;
  const AxisSet axes = rules::communicated_axes(app);
  const ir::Type &type = app.type(app.args[0]);
  const bool gathers = app.op.transition == rules::TransitionOp::AllGather;
  for (llvm::StringRef name : {"dim", "split_dim", "concat_dim"})
    if (rules::number_attr(app, {name}).value_or(0) != 0)
      return std::nullopt;
  if (gathers)
    return type.sharded().contains(axes)
               ? std::optional(Part{Part::Form::Gathered, operands[0], 0, axes, -1})
               : std::nullopt;
  const Part *own = part(operands[0]);
  if (app.op.transition != rules::TransitionOp::AllToAll || !own || own->form != Part::Form::Own ||
      own->member != -1)
    return std::nullopt;
  return Part{Part::Form::Exchanged, own->of, own->dim, axes, -1};
}

// One of as many equal parts as there are ranks.
std::optional<BlockLists::Part> BlockLists::member(const rules::Application &app, ValueId operand,
                                                   uint32_t index, uint32_t results) const {
  const std::optional<unsigned> dim = dim_of(app, rank_of(app, 0));
  if (!dim || results < 2)
    return std::nullopt;
  if (const Part *all = part(operand); all && all->member == -1 && *dim == 0) {
    Part one = *all;
    one.member = int32_t(index);
    return one;
  }
  return Part{Part::Form::Own, operand, *dim, {}, int32_t(index)};
}

// The tensor that a value is a copy or another name of.
static ValueId copied_from(const ir::Program &program, ValueId value) {
  constexpr int kMostCopies = 8;
  for (int i = 0; i < kMostCopies; ++i) {
    const ValueId from = only_source(program, value);
    if (!from.valid())
      break;
    const rules::ResolvedOp op = op_of(program, defining_inst(program, value));
    if (!rules::moves_elements(op) || (op.row && op.row->factors))
      break;
    value = from;
  }
  return value;
}

// All members of one list, in their order. In the place of one of what was gathered a rank may have
// put the tensor that it has sent, which has a gradient.
std::optional<BlockLists::Part> BlockLists::all_members(const rules::Application &app,
                                                        llvm::ArrayRef<ValueId> operands) const {
  const Part *first = operands.size() < 2 ? nullptr : part(operands[0]);
  if (!first && operands.size() >= 2)
    first = part(operands[1]);
  if (!first)
    return std::nullopt;
  bool own = false;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Part *each = part(operands[i]);
    if (!each && first->form == Part::Form::Gathered && !own &&
        copied_from(app.program, operands[i]) == copied_from(app.program, first->of)) {
      own = true;
      continue;
    }
    if (!each || each->form != first->form || each->of != first->of || each->dim != first->dim ||
        each->member != int32_t(i))
      return std::nullopt;
  }
  const ir::Mesh &mesh = app.program.meshes[app.type(app.args[0]).mesh()];
  if (first->axes && rules::size_of(mesh, first->axes) != int64_t(operands.size()))
    return std::nullopt;
  return *first;
}

std::optional<BlockLists::Joined> BlockLists::follow(const rules::Application &app,
                                                     llvm::ArrayRef<ValueId> operands,
                                                     ValueId result, uint32_t index,
                                                     uint32_t results) {
  if (operands.empty() || app.args.empty())
    return std::nullopt;
  std::optional<Part> made;
  if (app.op.form == rules::OpForm::Transition) {
    made = collected(app, operands);
  } else if (copies(app)) {
    if (const Part *same = part(operands.back()))
      made = *same;
  } else if (app.op.form == rules::OpForm::Equation && app.op.row) {
    const bool cat = app.op.row->factors == rules::cat_factors;
    if (cat || app.op.row->factors == rules::stack_factors) {
      made = all_members(app, operands);
      const std::optional<unsigned> dim = dim_of(app, rank_of(app, 0) + !cat);
      if (made && dim && cat && made->form != Part::Form::Own)
        return Joined{made->of, made->axes, *dim,
                      made->form == Part::Form::Gathered ? std::nullopt : std::optional(made->dim),
                      std::nullopt};
      if (made && (dim != 0U || made->form != Part::Form::Own))
        made.reset();
      if (made)
        made->member = -1;
    } else if (operands.size() == 1 && results > 1 &&
               app.op.row->own_dims == rules::OpDef::OwnDims::Proportional) {
      made = member(app, operands[0], index, results);
    }
  }
  if (made)
    parts_[result.index] = *made;
  return std::nullopt;
}

} // namespace spmd::checker
