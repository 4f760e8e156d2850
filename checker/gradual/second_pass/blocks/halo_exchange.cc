// Where edges of neighbours stand, and where their gradients are sent back to.
#include "checker/gradual/second_pass/blocks/halo_exchange.h"

#include "checker/walk/gradients/backward_slice.h"

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
