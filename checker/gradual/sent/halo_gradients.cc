// Follows gradients of edges from the windows that they are of to the blocks that they belong to.
#include "checker/gradual/sent/halo_gradients.h"

#include "checker/gradual/axis_size_numbers.h"
#include "checker/program_queries.h"

#include "checker/walk/gradients/backward_slice.h"
#include "rules/apply.h"
#include "rules/factors/factors.h"
#include "rules/factors/shape_rule.h"
#include "rules/ops/op.h"
#include "rules/shapes/attrs.h"
#include "rules/transitions/call.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::ValueId;
using rules::Computes;

struct HaloGradients::Step {
  const ir::Inst &inst;
  const rules::Application &app;
  llvm::ArrayRef<ValueId> operands;
  llvm::ArrayRef<AxisSet> proved;
  Facts facts = {};
};

std::optional<int64_t> HaloGradients::extent(ValueId value, unsigned dim) const {
  return extent_of(program_, checked_.shapes[value.index], dim);
}

// Of the rank's own block, with all that neighbours have sent, it is an ordinary gradient.
void HaloGradients::finish(Step &step, uint32_t result, Piece piece) const {
  step.facts.axis = piece.window.axis;
  step.facts.results.resize(std::max<size_t>(step.facts.results.size(), result + 1));
  Result &made = step.facts.results[result];
  made.piece = piece;
  if (piece.is_complete())
    made.known = Known{piece.window.axis, piece.window.dim, piece.proved};
}

// The backward of a convolution over a window: sums over the rank's own rows for what is not cut.
void HaloGradients::convolution(Step &step) const {
  const ValueId forward = step.inst.bwd_of;
  if (step.operands.size() < 3 || !forward.valid())
    return;
  const HaloWindows::Window *input = windows_.find(step.operands[1]);
  const HaloWindows::Window *output = windows_.find(forward);
  const ir::Type &gradient = step.app.type(step.app.args[0]);
  if (!output || !output->is_block() || gradient.dim(output->axis) != output->dim)
    return;
  const ir::AxisId axis = output->axis;
  const bool block =
      step.app.type(step.app.args[1]).dim(axis) == output->dim && (!input || input->is_block());
  if (!block && !(input && input->axis == axis && input->dim == output->dim))
    return;
  const bool proved = llvm::all_of(step.proved, [&](AxisSet on) { return on.contains(axis); });
  for (uint32_t r = 0; r < step.inst.result_count; ++r) {
    const bool of_input = rules::row_result(step.app, r) == 0;
    if (of_input && !block) {
      finish(step, r, {step.operands[1], *input, input->first, input->last, Own, false, proved});
      continue;
    }
    step.facts.axis = axis;
    step.facts.results.resize(r + 1);
    step.facts.results[r].known =
        Known{axis, of_input ? std::optional(output->dim) : std::nullopt, proved};
  }
}

// What autograd, or a backward by hand, makes of the gradient of a window in other ways: of whole
// blocks, and of what is made of them.
void HaloGradients::whole_gradient(Step &step) const {
  if (step.inst.result_count != 1 || !step.facts.results.empty())
    return;
  const ValueId of = program_.values[step.inst.first_result].grad_of;
  const HaloWindows::Window *window = of.valid() ? windows_.find(of) : nullptr;
  if (!window || window->is_block() || window->sent || window->astray)
    return;
  bool proved = true;
  for (size_t i = 0; i < step.operands.size(); ++i) {
    const Piece *piece = find(step.operands[i]);
    proved &= slices_.contains(step.operands[i].index);
    if (piece && (piece->of != of || piece->parts != Own))
      return;
  }
  finish(step, 0, {of, *window, window->first, window->last, Own, false, proved});
}

// Rows of a gradient: the rank's own ones, or an edge.
void HaloGradients::slice(Step &step) const {
  const Piece *from = find(step.operands[0]);
  if (!from || step.operands.size() != 1 || step.inst.result_count != 1)
    return;
  const unsigned dim = from->window.dim;
  const auto length = extent(step.inst.first_result, dim), all = extent(step.operands[0], dim);
  auto first = first_taken(step.app, dim);
  if (!length || !all || !first)
    return;
  *first += *first < 0 ? *all : 0;
  Piece piece = *from;
  if (*length == *all) {
    for (unsigned d = 0; const auto whole = extent(step.operands[0], d); ++d)
      if (whole != extent(step.inst.first_result, d))
        return;
    return finish(step, 0, piece);
  }
  if (*all != from->last - from->first || *first < 0)
    return;
  piece.first += *first;
  piece.last = piece.first + *length;
  const bool of_window = from->first == from->window.first && from->last == from->window.last;
  const bool edge =
      of_window && ((piece.first == from->window.first && piece.last == 0) ||
                    (piece.first == from->window.rows && piece.last == from->window.last));
  if (edge)
    piece.parts = 0;
  else if (piece.first < 0 || piece.last > from->window.rows)
    return;
  finish(step, 0, piece);
}

// Rows put where they belong in a block of zeros.
void HaloGradients::pad(Step &step) const {
  const Piece *from = find(step.operands[0]);
  if (!from || step.inst.result_count != 1)
    return;
  const auto first = first_taken(step.app, from->window.dim);
  const auto dim = rules::dim_number(step.app);
  if (!first || !dim || extent(step.inst.first_result, from->window.dim) != from->window.rows ||
      rules::place_of(*dim, rank_of(step.operands[0])) != from->window.dim)
    return;
  const int64_t at = *first + (*first < 0 ? from->window.rows : 0);
  Piece piece = *from;
  if (from->parts == 0 || at != piece.first) {
    step.facts.misplaced = 0;
    step.facts.axis = piece.window.axis;
    return;
  }
  piece.first = 0, piece.last = piece.window.rows;
  finish(step, 0, piece);
}

void HaloGradients::send(Step &step) const {
  const Piece *from = find(step.operands[0]);
  const AxisSet axes = rules::communicated_axes(step.app);
  if (!from || from->parts != 0 || axes != AxisSet(from->window.axis))
    return;
  const auto shift = shift_of(step.app, step.app.mesh()[from->window.axis].size());
  if (!shift)
    return;
  Piece piece = *from;
  piece.parts = piece.first < 0 ? After : Before;
  piece.wraps = shift->second;
  piece.first -= shift->first * piece.window.rows;
  piece.last -= shift->first * piece.window.rows;
  // Where the forward ends at the ends of the axis the backward has to, too.
  piece.proved &= piece.wraps == piece.window.wraps;
  finish(step, 0, piece);
}

// What belongs to the same rows is added; to an ordinary gradient of the block as well.
void HaloGradients::add(Step &step) const {
  if (step.operands.size() != 2 || step.inst.result_count != 1 ||
      rules::any_attr(step.app, {"alpha"}))
    return;
  const Piece *a = find(step.operands[0]), *b = find(step.operands[1]);
  if (a && b && a->of != b->of) // what is complete is an ordinary gradient
    (a->is_complete() ? a : b) = nullptr;
  if (!a && !b)
    return;
  if (!a || !b) {
    const size_t other = a ? 1 : 0;
    const Piece &piece = a ? *a : *b;
    const ir::Type &type = step.app.type(step.app.args[other]);
    const bool zero = type.zero().contains(piece.window.axis);
    if (!zero && (!piece.is_block() || type.dim(piece.window.axis) != piece.window.dim))
      return;
    Piece made = piece;
    made.proved &= zero || step.proved[other].contains(piece.window.axis);
    return finish(step, 0, made);
  }
  if (a->first != b->first || a->last != b->last || ((a->parts == 0) != (b->parts == 0))) {
    step.facts.misplaced = b->parts == Own && a->parts != Own ? 0 : 1;
    step.facts.axis = a->window.axis;
    return;
  }
  if (a->parts & b->parts & ~Own)
    return;
  Piece made = *a;
  made.parts |= b->parts;
  made.proved &= b->proved;
  finish(step, 0, made);
}

// A block of which rows were written to: with what was added to these.
void HaloGradients::write(Step &step) const {
  const Piece *rows = step.operands.size() == 2 ? find(step.operands[0]) : nullptr;
  const Piece *whole = rows ? find(step.operands[1]) : nullptr;
  if (!whole || rows->of != whole->of || rows->first < whole->first || rows->last > whole->last ||
      extent(step.operands[1], whole->window.dim) !=
          extent(step.inst.first_result, whole->window.dim))
    return;
  Piece made = *whole;
  made.parts |= rows->parts;
  made.proved &= rows->proved;
  finish(step, 0, made);
}

size_t HaloGradients::rank_of(ValueId value) const {
  const ir::ShapeId id = checked_.shapes[value.index];
  return id.valid() && program_.shapes[id].ranked ? program_.shapes[id].dims.size() : 0;
}

HaloGradients::Facts HaloGradients::infer(const ir::Inst &inst, const rules::Application &app,
                                          llvm::ArrayRef<ValueId> operands,
                                          llvm::ArrayRef<AxisSet> proved) const {
  Step step{inst, app, operands, proved};
  if (operands.empty() || operands.size() != app.args.size() || inst.result_count == 0 ||
      is_forward(inst))
    return {};
  const rules::OpDef *row = app.op.form == rules::OpForm::Equation ? app.op.row : nullptr;
  if (app.op.transition == rules::TransitionOp::CollectivePermute)
    send(step);
  else if (app.op.boundary == rules::Boundary::Alias)
    write(step);
  else if (!row)
    return {};
  else if (row->factors == rules::convolution_backward_factors)
    convolution(step);
  else if (row->factors == rules::slice_factors)
    slice(step);
  else if (row->factors == rules::slice_backward_factors)
    pad(step);
  else if (app.op.computes(Computes::Add))
    add(step);
  else if (copies_operand(app.op, operands.size()))
    if (const Piece *same = find(operands.back()))
      finish(step, 0, *same);
  whole_gradient(step);
  return std::move(step.facts);
}

void HaloGradients::learn(const ir::Inst &inst, const rules::Application &app,
                          llvm::ArrayRef<ValueId> operands, const Facts &facts,
                          llvm::ArrayRef<AxisSet> proved) {
  for (uint32_t r = 0; r < facts.results.size() && r < inst.result_count; ++r)
    if (facts.results[r].piece)
      pieces_.insert({inst.result(r).index, *facts.results[r].piece});
  // Blocks put where they were taken from a window, before they are added to its gradient.
  const bool pads = app.op.row && app.op.row->factors == rules::slice_backward_factors;
  const bool adds = app.op.computes(Computes::Add) && operands.size() == 2;
  if (inst.result_count != 1 || is_forward(inst) || !inst.bwd_of.valid())
    return;
  const HaloWindows::Window *window = windows_.find(inst.bwd_of);
  const bool known =
      (pads && window && proved.size() == 1 && proved[0].contains(window->axis)) ||
      (adds && llvm::all_of(operands, [&](ValueId one) { return slices_.contains(one.index); }));
  if (known)
    slices_.insert(inst.first_result.index);
}

AxisSet HaloGradients::lacking(ValueId gradient) const {
  const Piece *piece = find(gradient);
  const bool incomplete =
      piece && piece->is_block() && (piece->parts & Own) && !piece->is_complete();
  return incomplete ? AxisSet(piece->window.axis) : AxisSet();
}

} // namespace spmd::checker
