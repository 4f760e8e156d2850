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

// What a tensor consists of, whose dimensions are only turned or put in another order.
static ValueId elements_of(const ir::Program &program, ValueId value) {
  constexpr int kMostOps = 4;
  for (int i = 0; i < kMostOps; ++i) {
    const ValueId from = only_source(program, value);
    if (!from.valid() || !rules::moves_elements(op_of(program, defining_inst(program, value))))
      break;
    value = from;
  }
  return value;
}

llvm::SmallVector<ValueId, 2> HaloGradients::convolved_with(ValueId weights) {
  if (!convolved_) {
    convolved_.emplace();
    for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
      const ir::Inst &inst = program_.insts[ir::InstId{i}];
      const rules::OpDef *row = op_of(program_, ir::InstId{i}).row;
      if (!row || row->factors != rules::convolution_factors || !is_forward(inst))
        continue;
      const auto operands = tensors_of(program_, ir::InstId{i});
      const HaloWindows::Window *window =
          operands.size() < 2 ? nullptr : windows_.find(operands[0]);
      if (window && !window->is_block())
        (*convolved_)[elements_of(program_, operands[1]).index].push_back(operands[0]);
    }
  }
  return convolved_->lookup(elements_of(program_, weights).index);
}

// Which of the dimensions that a convolution of JAX slides over one of an operand is.
static std::optional<size_t> place_of_spatial(const rules::Application &app, unsigned operand,
                                              unsigned dim) {
  constexpr size_t kSpatial = 2; // behind the batch and the feature
  const ir::AttrValue *dims = app.attr("dimension_numbers");
  const auto spec =
      dims ? rules::attr_part(app, *dims, operand == 0 ? "lhs_spec" : "rhs_spec", operand)
           : std::nullopt;
  const auto numbers = spec ? rules::numbers_of(app, *spec) : std::nullopt;
  for (size_t i = kSpatial; numbers && i < numbers->size(); ++i)
    if ((*numbers)[i] == int64_t(dim))
      return i - kSpatial;
  return std::nullopt;
}

// Of JAX, whose backward of a convolution over a window consists of two more: of the gradient with
// the turned weights, for the window, and of the window with the gradient, for the weights.
void HaloGradients::convolution_of_gradient(Step &step) {
  const auto between = rules::numbers_attr(step.app, {"lhs_dilation"});
  const ir::AttrValue *padding = step.app.attr("padding");
  if (step.operands.size() != 2 || step.inst.result_count != 1 || !between || !padding ||
      llvm::any_of(*between, [](int64_t n) { return n != 1; }))
    return;
  // How many rows of zeros stand at each end of the dimension of the first operand, if they are as
  // many there, and the other one, if it is the gradient, has its rows there.
  const auto zeros = [&](unsigned dim,
                         std::optional<unsigned> of_gradient) -> std::optional<int64_t> {
    const auto at = place_of_spatial(step.app, 0, dim);
    if (!at || (of_gradient && place_of_spatial(step.app, 1, *of_gradient) != at))
      return std::nullopt;
    const auto pair = rules::attr_part(step.app, *padding, "", static_cast<unsigned>(*at));
    const auto rows = pair ? rules::numbers_of(step.app, *pair) : std::nullopt;
    return rows && rows->size() == 2 && (*rows)[0] == (*rows)[1] ? std::optional((*rows)[0])
                                                                 : std::nullopt;
  };
  const auto block_dim = [&](size_t operand, const HaloWindows::Window &window) {
    const std::optional<unsigned> dim = step.app.type(step.app.args[operand]).dim(window.axis);
    return dim && extent(step.operands[operand], *dim) == window.rows ? dim : std::nullopt;
  };
  const auto is_proved = [&](ir::AxisId axis) {
    return llvm::all_of(step.proved, [&](AxisSet on) { return on.contains(axis); });
  };
  if (const HaloWindows::Window *window = windows_.find(step.operands[0])) {
    const auto dim = block_dim(1, *window);
    if (window->is_block() || !dim || zeros(window->dim, dim) != 0)
      return;
    step.facts.axis = window->axis;
    step.facts.results.resize(1);
    step.facts.results[0].known = Known{window->axis, std::nullopt, is_proved(window->axis)};
    return;
  }
  const ir::ShapeId made = checked_.shapes[step.inst.first_result.index];
  for (ValueId of : convolved_with(step.operands[1])) {
    const HaloWindows::Window &window = *windows_.find(of);
    const auto dim = block_dim(0, window);
    if (checked_.shapes[of.index] == made && dim &&
        zeros(*dim, std::nullopt) == window.last - window.first - window.rows)
      return finish(step, 0,
                    {of, window, window.first, window.last, Own, false, is_proved(window.axis)});
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
  const auto shift =
      shift_of(step.app, step.app.mesh()[from->window.axis].size(), from->first < 0 ? -1 : 1);
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

// Rows added where one number says that they begin, which stands in a tensor of JAX.
void HaloGradients::scatter(Step &step) const {
  const Piece *whole = step.operands.size() == 3 ? find(step.operands[0]) : nullptr;
  const Piece *rows = whole ? find(step.operands[2]) : nullptr;
  const ir::AttrValue *dims = step.app.attr("dimension_numbers");
  if (!rows || rows->of != whole->of || !whole->is_block() || !dims)
    return;
  const auto places = rules::attr_part(step.app, *dims, "scatter_dims_to_operand_dims", 2);
  const auto placed = places ? rules::numbers_of(step.app, *places) : std::nullopt;
  const ir::InstId by = defining_inst(program_, step.operands[1]);
  const ir::AttrValue *first =
      by.valid() ? program_.find(program_.insts[by].attrs, "fill_value") : nullptr;
  if (!placed || placed->size() != 1 || (*placed)[0] != int64_t(whole->window.dim) || !first ||
      first->form != ir::AttrForm::Integer)
    return;
  if (rows->parts == 0 || first->as_integer() != rows->first) {
    step.facts.misplaced = 2;
    step.facts.axis = rows->window.axis;
    return;
  }
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
                                          llvm::ArrayRef<AxisSet> proved) {
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
  else if (row->factors == rules::convolution_factors)
    convolution_of_gradient(step);
  else if (row->variant == rules::Variant::Adds && app.op.variant() != rules::Variant::Subtracts &&
           app.attr("dimension_numbers"))
    scatter(step);
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
