// Gradients that a program states, and those that an optimizer reads after what its contract
// reduces.
#include "tests/soundness/judge.h"

#include "checker/check.h"
#include "checker/operand_list.h"
#include "ir/text/text.h"

#include <fmt/format.h>

namespace spmd::soundness {

using ir::AxisSet;
using ir::Kind;
using ir::ValueId;

Residue Execution::stated_root() const {
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[ir::InstId{i}];
    if (program_.op_name(inst.op) != "ones_like" || !inst.first_result.valid())
      continue;
    ValueId of = program_.values[inst.first_result].grad_of;
    if (of.valid())
      return scale_number(program_, program_.types[setting_.typed(of, 0).type].scale);
  }
  return 1;
}

// A list is a sum that nobody has called so where the dual is pending: its members are not one
// value. Nor are blocks of a tensor the members of a list.
static bool lies_otherwise(const ir::Type &made, const ir::Type &dual) {
  return ((made.of(Kind::Varying) - made.sharded()) & dual.of(Kind::Partial)) ||
         !(made.sharded() == dual.sharded());
}

// Of the dual type of its value.
void Execution::judge_stated(ValueId value, Verdict &verdict) {
  ValueId of = program_.values[value].grad_of;
  if (!verdict.is(Verdict::Form::Upheld) || !of.valid() || !ran(value) || !ran(of))
    return;
  Typed known = setting_.typed(of, 0);
  const ir::Type &type = program_.types[known.type];
  const ir::Type &made = program_.types[setting_.typed(value, 0).type];
  if (type.gradient_free() || type.unknown || made.unknown || type.combining() ||
      made.combining() || lies_otherwise(made, type.dual()))
    return;
  ++verdict.gradients;
  std::string what = refute_data(program_, setting_.world, known, type.dual(),
                                 *ranks_->value(value), *meant_->value(value),
                                 stated_root() * scale_number(program_, type.scale).inverse());
  if (what.empty())
    return;
  verdict.form = Verdict::Form::Wrong;
  verdict.what = fmt::format("{}, stated as the gradient of {}: {}",
                             ir::print_value(program_, value), ir::print_value(program_, of), what);
}

std::string Execution::refute_against(ValueId stated, Execution &taped, ValueId of,
                                      unsigned &compared) {
  if (!ran(stated) || !taped.ran(of) || !taped.ranks_->was_differentiated(of))
    return {};
  Typed known = setting_.typed(stated, 0);
  const ir::Type &type = program_.types[known.type];
  Typed value = taped.setting_.typed(of, 0);
  const ir::Type &valued = taped.program_.types[value.type];
  const Held *meant = taped.meant_->gradient(of);
  if (!meant || valued.gradient_free() || type.unknown || type.combining() ||
      lies_otherwise(type, valued.dual()))
    return {};
  ++compared;
  ValueId root = taped.ranks_->root();
  Residue of_root =
      root.valid() ? scale_number(taped.program_,
                                  taped.program_.types[taped.setting_.typed(root, 0).type].scale)
                   : Residue(1);
  return refute_data(taped.program_, taped.setting_.world, value, valued.dual(),
                     *ranks_->value(stated), *meant,
                     of_root * scale_number(taped.program_, valued.scale).inverse());
}

// After the reductions of the contract the ranks hold what the optimizer needs.
std::string Execution::refute_step(const ir::Param &param, const ir::Type &gradient,
                                   const Held &ranks, const Held &meant) {
  Typed known = setting_.typed(param.value, 0);
  ir::Type needed = program_.types[known.type];
  if (param.grad.step.valid() && program_.claims[param.grad.step].type.valid()) {
    const ir::Type &step = program_.types[program_.claims[param.grad.step].type];
    if (!(step.sharded() == needed.sharded()) || step.mesh() != needed.mesh())
      return {}; // cut otherwise than the parameter: not followed
    AxisSet named = step.claimed();
    for (const ir::KindInfo &row : ir::kKinds)
      needed.of(row.kind) = (needed.of(row.kind) - named) | (step.of(row.kind) & named);
  }
  if (needed.of(Kind::Varying) - needed.sharded())
    return {};
  const World &world = setting_.world;
  const ir::Mesh &mesh = program_.meshes[needed.mesh()];
  Held synced = ranks, whole = meant;
  // Of axes that are local everywhere nothing is meant: what the ranks have there are addends, and
  // an average of addends divides on one device, too.
  AxisSet nowhere = program_.local_axes(needed.mesh());
  AxisSet lists = (gradient.of(Kind::Varying) - gradient.sharded()) & nowhere;
  Residue factor = scale_number(program_, needed.scale);
  for (const ir::Sync &sync : param.grad.sync) {
    AxisSet pieces;
    for (const ir::AxisRef &ref : program_.axis_refs[sync.axes].refs) {
      std::optional<ir::AxisId> axis = mesh.find(ref.axis);
      if (ref.mesh.valid() || !axis)
        return {};
      pieces |= mesh.pieces_of(*axis);
    }
    synced = summed_over(synced, needed.mesh(), pieces, sync.op);
    whole = summed_over(whole, needed.mesh(), pieces & lists, ir::Combiner::Sum);
    for (ir::AxisId axis : pieces)
      if (sync.op == ir::Combiner::Avg && nowhere.contains(axis) &&
          (gradient.of(Kind::Partial) | lists).contains(axis))
        factor *= Residue(mesh[axis].size()).inverse();
  }
  return refute_data(program_, world, known, needed, synced, whole, factor);
}

// What each rank has of the sum, or of the average, over the axes.
Held Execution::summed_over(const Held &held, ir::MeshId mesh, AxisSet axes,
                            ir::Combiner op) const {
  const World &world = setting_.world;
  Held sums{{}, Arrays(world.size())};
  for (unsigned r = 0; r < world.size(); ++r) {
    Array total = Array::zeros(held.at[held.rep[r]].dims);
    int64_t count = 0;
    for (unsigned other = 0; other < world.size(); ++other)
      if (world.moved(mesh, axes, other, 0) == world.moved(mesh, axes, r, 0)) {
        add_to(total, held.at[held.rep[other]]);
        ++count;
      }
    sums.rep.push_back(static_cast<uint8_t>(r));
    sums.at[r] = op == ir::Combiner::Avg ? times(std::move(total), Residue(count).inverse())
                                         : std::move(total);
  }
  return sums;
}

std::string Execution::refute_step_against(ValueId param, ValueId read, Execution &taped,
                                           ValueId before, unsigned &compared) {
  if (!ran(read) || !taped.ran(before))
    return {};
  for (const ir::Param &each : program_.params)
    if (each.value == param) {
      ++compared;
      return refute_step(each, program_.types[setting_.typed(read, 0).type], *ranks_->value(read),
                         *taped.meant_->value(before));
    }
  return {};
}

void Execution::judge_steps(Verdict &verdict) {
  std::vector<bool> stepped(program_.params.size());
  auto wrong = [&](const ir::Param &param, const std::string &what) {
    verdict.form = Verdict::Form::Wrong;
    verdict.what = fmt::format("the gradient that the optimizer reads for {}: {}",
                               ir::print_value(program_, param.value), what);
  };
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[ir::InstId{i}];
    if (program_.op_name(inst.op) != "step" || !verdict.is(Verdict::Form::Upheld))
      continue;
    checker::OperandList operands;
    operands.read(program_, inst.operands);
    for (size_t p = 0; p < program_.params.size() && operands.values.size() == 2; ++p) {
      const ir::Param &param = program_.params[p];
      if (!(param.value == operands.values[0]) || !ran(operands.values[1]))
        continue;
      stepped[p] = true;
      Typed typed = setting_.typed(operands.values[1], 0);
      ++verdict.gradients;
      std::string what =
          refute_step(param, program_.types[typed.type], *ranks_->value(operands.values[1]),
                      *meant_->value(operands.values[1]));
      if (!what.empty())
        return wrong(param, what);
    }
  }
  // What a contract reduces and no `step` names.
  for (size_t p = 0; p < program_.params.size(); ++p) {
    const ir::Param &param = program_.params[p];
    if (stepped[p] || param.grad.sync.empty() || !ranks_->root().valid() || !ran(param.value) ||
        !ranks_->was_differentiated(param.value))
      continue;
    const Held *held = ranks_->gradient(param.value), *meant = meant_->gradient(param.value);
    if (!held || !meant)
      continue;
    Held own = *held, whole = *meant;
    const ir::Type type = program_.types[setting_.typed(param.value, 0).type];
    ++verdict.gradients;
    if (std::string what = refute_step(param, type.dual(), own, whole); !what.empty())
      return wrong(param, what);
  }
}

} // namespace spmd::soundness
