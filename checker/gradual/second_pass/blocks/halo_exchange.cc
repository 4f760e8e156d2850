// Where edges of neighbours stand, and where their gradients are sent back to.
#include "checker/gradual/second_pass/blocks/halo_exchange.h"

#include "checker/dialect/printer.h"
#include "checker/program_queries.h"
#include "checker/walk/gradients/backward_slice.h"

#include "rules/factors/factors.h"
#include "rules/violations/diagnostic_info.h"
#include "rules/violations/steps/edges.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;

// Edges that neighbours have sent, beside a rank's own rows.
void HaloExchange::judge_window(InstId id, const rules::Application &app) {
  const ir::Inst &inst = program_.insts[id];
  if (inst.result_count == 0)
    return;
  window_ = windows_.infer(app, state_.operands.values, inst.first_result);
  if (window_.window) {
    now_.open -= window_.window->axis;
    window_.window->any_order |= now_.parts.contains(window_.window->axis);
  } else
    for (ValueId operand : state_.operands.values)
      now_.open |= windows_.parts(operand);
  const AxisSet axes = window_.axes - now_.reported;
  if (axes.empty() || !is_forward(inst))
    return;
  const rules::OperandIndex operand{window_.operand};
  if (window_.fault == HaloWindows::Fault::Order)
    state_.report(Place::inst(id), rules::MisplacedEdge{operand, axes});
  else if (window_.fault == HaloWindows::Fault::Ends)
    state_.report(Place::inst(id), rules::HalfOpenRing{operand, axes});
  else if (window_.fault == HaloWindows::Fault::Axis)
    state_.report(Place::inst(id), rules::EdgeOfOtherAxis{operand, axes});
  else if (window_.fault == HaloWindows::Fault::Missing)
    state_.report(Place::inst(id), rules::MissingEdge{operand, axes});
  else if (window_.fault == HaloWindows::Fault::Shifted && !exchanging().contains(axes.first()) &&
           result_.proved[state_.operands.values[window_.operand].index].contains(axes))
    state_.report(Place::inst(id), rules::ShiftedBlock{operand, axes});
}

// The axes along which some rows of a tensor are handed to other ranks: there, what a rank computes
// of its own may be what needs none of theirs.
AxisSet HaloExchange::exchanging() {
  if (exchanging_)
    return *exchanging_;
  exchanging_ = AxisSet();
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    const rules::ResolvedOp &op = state_.rules.resolve(inst.op);
    if (op.form != rules::OpForm::Transition || op.transition == rules::TransitionOp::Convert ||
        !is_forward(inst) || llvm::none_of(tensors_of(program_, InstId{i}), [&](ValueId value) {
          return is_part(value);
        }))
      continue;
    const TypedCall typed = call_of(program_, gradual_.by_kinds(), inst);
    if (llvm::any_of(typed.args, [](const rules::TensorInfo &arg) { return !arg.type.valid(); }))
      continue;
    const rules::Application app{program_,         op,         inst.attrs,  inst.context,
                                 typed.list.slots, typed.args, typed.claims};
    *exchanging_ |= rules::communicated_axes(app);
  }
  return *exchanging_;
}

// Whether a value is made of a slice alone, in a few steps.
bool HaloExchange::is_part(ValueId value) const {
  constexpr int kMostOps = 4;
  for (int step = 0; step < kMostOps; ++step) {
    const ValueId from = only_source(program_, value);
    if (!from.valid())
      return false;
    const InstId by = defining_inst(program_, value);
    const rules::OpDef *row = state_.rules.resolve(program_.insts[by].op).row;
    if (row && row->factors == rules::slice_factors)
      return true;
    value = from;
  }
  return false;
}

// Two parts of blocks that begin at different rows and meet row by row.
void HaloExchange::judge_shift(InstId id) {
  const ir::Inst &inst = program_.insts[id];
  if (!window_.window || !is_forward(inst) ||
      !result_.proved[state_.operands.values[0].index].contains(window_.window->axis))
    return;
  const HaloWindows::Window &part = *window_.window;
  const bool at_one_end =
      part.first >= 0 && part.last <= part.rows && (part.first == 0) != (part.last == part.rows);
  if (part.sent || part.any_order || part.astray || part.dim == 0 || !at_one_end)
    return;
  const auto cls = gradual_.cuts().positions().in_front(inst.first_result, part.dim);
  if (!cls)
    return;
  const auto [other, is_first] =
      cuttings_.try_emplace(*cls, Cutting{part.axis, part.first, part.rows, id});
  const Cutting &met = other->second;
  if (is_first || met.axis != part.axis || met.rows != part.rows || met.first == part.first ||
      now_.reported.contains(part.axis) || exchanging().contains(part.axis))
    return;
  state_.report(Place::inst(part.first == 0 ? met.by : id),
                rules::ShiftedBlock{{0}, AxisSet(part.axis)});
}

// What neighbours have computed of the gradient of edges, and of what they have not sent back.
void HaloExchange::judge_gradient(InstId id, const rules::Application &app) {
  const ir::Inst &inst = program_.insts[id];
  if (is_forward(inst) || windows_.empty())
    return;
  llvm::SmallVector<AxisSet, 4> proved;
  for (ValueId operand : state_.operands.values)
    proved.push_back(result_.proved[operand.index]);
  gradient_ = edge_gradients_.infer(inst, app, state_.operands.values, proved);
  edge_gradients_.learn(inst, app, state_.operands.values, gradient_, proved);
  const AxisSet axes = AxisSet(gradient_.axis) - now_.reported;
  if (gradient_.misplaced && axes)
    state_.report(Place::inst(id), rules::MisplacedEdge{{*gradient_.misplaced}, axes});
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    const ValueId of = program_.values[inst.result(r)].grad_of;
    if (const AxisSet lacking = edge_gradients_.lacking(inst.result(r)) - now_.reported;
        of.valid() && lacking)
      state_.report(Place::inst(id), rules::EdgeGradientKept{of, lacking});
  }
}

void HaloExchange::begin() {
  window_ = {};
  gradient_ = {};
}

void HaloExchange::judge(InstId id, const rules::Application &app) {
  judge_window(id, app);
  judge_shift(id);
  judge_gradient(id, app);
}

// Blocks that were cut out of windows.
void HaloExchange::keep_blocks(Type &type) const {
  for (AxisId axis : window_.blocks() - type.sharded() - now_.reported) {
    type.set_kind(axis, Kind::Varying);
    cut(type, axis, window_.window->dim);
  }
}

void HaloExchange::keep_known(uint32_t index, Type &type) const {
  const auto *of_block = gradient_.known(index);
  if (!of_block || now_.reported.contains(of_block->axis))
    return;
  type.drop_shards(AxisSet(of_block->axis));
  type.renumber_shard_orders();
  type.set_kind(of_block->axis, of_block->dim ? Kind::Varying : Kind::Partial);
  if (of_block->dim)
    cut(type, of_block->axis, *of_block->dim);
}

AxisSet HaloExchange::in_place() const {
  return window_.window ? AxisSet(window_.window->axis) - window_.window->astray : AxisSet();
}

} // namespace spmd::checker
