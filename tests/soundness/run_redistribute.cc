// Redistributions to whole types. What ranks mean together stays; ranks carry out the steps of the
// plan, and backward the dual of each.
#include "tests/soundness/run.h"

#include "checker/check.h"
#include "checker/operand_list.h"

#include "rules/redistribute/call.h"
#include "rules/redistribute/ends.h"
#include "rules/redistribute/plan.h"
#include "rules/transitions/call.h"

#include "ir/claims.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::soundness {

namespace rd = rules::redistribute;
using ir::AxisId;
using ir::ValueId;

bool Run::redistribution(const ir::Inst &inst) {
  checker::OperandList operands;
  operands.read(program_, inst.operands);
  if (operands.values.size() != 1 || inst.result_count != 1)
    return fail("a redistribution of several tensors");
  if (program_.local_axes(program_.contexts[inst.context]))
    return fail("a redistribution where an axis is local");
  ValueId from = operands.values[0], to = inst.result(0);
  NodeId at = multiplied(node(from), 1);
  if (side_ == Side::Whole) {
    define(to, at);
    return true;
  }
  Typed known = typed(from);
  rules::TensorInfo arg{known.type, known.shape, known.sizes};
  rules::ResultClaim claim;
  rules::Application app{
      program_, setting_.rules.resolve(inst.op), inst.attrs, inst.context, operands.slots, arg,
      claim};
  std::optional<rd::Request> request = rd::request_of(app);
  if (!request)
    return fail("a redistribution without a plan");
  rd::Planner planner(program_);
  bool gradient = carries_gradient(to) && carries_gradient(from);
  const rd::Plan plan = planner.plan(*request);
  for (const rd::Step &step : plan.steps) {
    ir::MeshId mesh = program_.types[step.before].mesh();
    if (step.op == rules::TransitionOp::Reorder) {
      std::optional<NodeId> made =
          reordered(mesh, step.axes, step.before, step.after, at, gradient);
      if (!made)
        return false;
      at = *made;
      continue;
    }
    std::optional<Call> call =
        read_call(program_, rules::name_of(step.op), rd::attributes_of(program_, step), mesh, why);
    if (!call)
      return false;
    auto kept = std::make_shared<Call>(std::move(*call)); // alive as long as the tape
    tape_.push_back([kept] {});
    // Blocks are joined from the innermost axis on, and cut from the outermost.
    llvm::SmallVector<const Step *, 4> order;
    for (const Step &each : kept->steps)
      order.push_back(&each);
    if (step.op == rules::TransitionOp::AllGather)
      std::reverse(order.begin(), order.end());
    for (const Step *each : order) {
      if (each->src == each->dst)
        continue;
      at = rank_step(*kept, *each, at, gradient);
      if (!why.empty())
        return false;
    }
  }
  define(to, at);
  return true;
}

bool Run::reorder(const ir::Inst &inst) {
  checker::OperandList operands;
  operands.read(program_, inst.operands);
  const ir::AttrValue *axis = program_.find(inst.attrs, "axis");
  if (operands.values.size() != 1 || inst.result_count != 1 || !axis ||
      axis->form != ir::AttrForm::Axes)
    return fail("a reorder without axes, or of several tensors");
  if (program_.local_axes(program_.contexts[inst.context]))
    return fail("a reorder where an axis is local");
  ValueId from = operands.values[0], to = inst.result(0);
  if (side_ == Side::Whole) {
    define(to, multiplied(node(from), 1));
    return true;
  }
  ir::MeshId mesh = program_.contexts[inst.context].mesh;
  llvm::SmallVector<AxisId, 4> axes;
  for (const ir::AxisRef &ref : program_.axis_refs[axis->as<ir::AxisRefsId>()].refs) {
    std::optional<AxisId> found = program_.meshes[mesh].find(ref.axis);
    if (ref.mesh.valid() || !found)
      return fail("an axis of another mesh");
    for (AxisId piece : program_.meshes[mesh].pieces_of(*found))
      axes.push_back(piece);
  }
  for (AxisId each :
       rd::changed_axes(program_, program_.types[typed(from).type], program_.types[typed(to).type]))
    if (!llvm::is_contained(axes, each))
      return fail("a reorder of other axes than change");
  bool gradient = carries_gradient(to) && carries_gradient(from);
  std::optional<NodeId> made =
      reordered(mesh, axes, typed(from).type, typed(to).type, node(from), gradient);
  if (made)
    define(to, *made);
  return made.has_value();
}

// The blocks change places along the axes; backward they go back.
std::optional<Run::NodeId> Run::reordered(ir::MeshId mesh, llvm::ArrayRef<AxisId> axes,
                                          ir::TypeId before, ir::TypeId after, NodeId from,
                                          bool gradient) {
  const ir::Mesh &on = program_.meshes[mesh];
  llvm::SmallVector<llvm::SmallVector<AxisId, 2>, 4> was, is;
  const Array &held = nodes_[from]->value.at[0];
  for (unsigned dim = 0; dim < held.dims.size(); ++dim) {
    was.push_back(ir::shards_of(program_.types[before], dim));
    is.push_back(ir::shards_of(program_.types[after], dim));
    auto ranks = [&](llvm::ArrayRef<AxisId> cut) {
      int64_t product = 1;
      for (AxisId axis : cut)
        product *= on[axis].size();
      return product;
    };
    if (ranks(was.back()) != ranks(is.back()))
      return fail("a reorder between blocks of different length"), std::nullopt;
  }
  auto sources = rules::reorder_sources(on, axes, was, is);
  ir::Layout layout;
  for (AxisId axis : axes)
    layout.append(on[axis].layout.begin(), on[axis].layout.end());
  std::vector<RankList> groups = world_.groups(mesh, layout);
  NodeId to = add({nodes_[from]->value.rep, Arrays(world_.size())});
  for (const RankList &group : groups)
    for (size_t k = 0; k < group.size(); ++k)
      nodes_[to]->value.at[group[k]] =
          nodes_[from]->value.at[group[static_cast<size_t>(sources[k])]];
  if (gradient)
    tape_.push_back([this, groups, sources, from, to] {
      if (nodes_[to]->gradient.empty())
        return;
      for (const RankList &group : groups)
        for (size_t k = 0; k < group.size(); ++k)
          add_to(gradient_of(from)[group[static_cast<size_t>(sources[k])]],
                 nodes_[to]->gradient[group[k]]);
    });
  return to;
}

} // namespace spmd::soundness
