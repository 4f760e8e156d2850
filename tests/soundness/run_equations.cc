// Ops that are equations, on all ranks or on what they mean together.
#include "tests/soundness/run.h"

#include "checker/check.h"
#include "checker/operand_list.h"
#include "ir/text/text.h"

#include <fmt/format.h>

namespace spmd::soundness {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::ValueId;

Run::NodeId Run::seen(ValueId value, ir::ContextId context) {
  Typed known = typed(value);
  const ir::Type &type = program_.types[known.type];
  AxisSet local = program_.local_axes(program_.contexts[context]) & type.sharded();
  if (side_ == Side::Ranks || local.empty())
    return node(value);
  return relisted(node(value), known, {}, known, local);
}

Run::Nodes Run::seen_operands(const ir::Inst &inst) {
  checker::OperandList operands;
  operands.read(program_, inst.operands);
  Nodes nodes;
  for (ValueId value : operands.values)
    nodes.push_back(seen(value, inst.context));
  return nodes;
}

bool Run::equation(const ir::Inst &inst, uint32_t index) {
  std::string problem;
  const FieldOp *op = setting_.field_op(inst, index, typing_, problem);
  if (!op)
    return fail(problem);
  checker::OperandList operands;
  operands.read(program_, inst.operands);
  Nodes nodes = seen_operands(inst);
  AxisSet local = program_.local_axes(program_.contexts[inst.context]);
  ir::MeshId mesh = program_.contexts[inst.context].mesh;
  AxisSet pending = side_ == Side::Whole ? summed_axes(inst, operands.values) : AxisSet();
  for (size_t i = 0; i < nodes.size(); ++i) // an addend counts once, whatever it is added to
    if (AxisSet axes = program_.types[typed(operands.values[i]).type].of(Kind::Partial) & pending)
      nodes[i] = first_of_zeros(nodes[i], mesh, axes);
  // A result that takes no value of an operand is no list for its sake.
  RankList rep = classes(nodes);
  std::vector<Placement> arg_placements, result_placements;
  for (ValueId value : operands.values)
    arg_placements.emplace_back(program_, world_, typed(value), local);
  llvm::SmallVector<NodeId, 2> results;
  bool differentiable = false;
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    Typed known = typed(inst.result(r));
    result_placements.emplace_back(program_, world_, known, local);
    if (!result_placements.back().known())
      return fail("extents that are no numbers");
    Nodes read;
    for (unsigned i = 0; i < nodes.size(); ++i)
      if (op->reads(r, i))
        read.push_back(nodes[i]);
    results.push_back(add({classes(read), Arrays(world_.size())}));
    differentiable |= carries_gradient(inst.result(r));
  }

  // The operands of a rank, and the extents of its results.
  struct Site {
    std::vector<FieldArg> args;
    std::vector<Dims> firsts, wholes, result_dims;
  };
  Side side = side_;
  auto site_of = [this, nodes, arg_placements, result_placements, side](unsigned r) {
    auto site = std::make_unique<Site>();
    site->firsts.reserve(nodes.size());
    site->wholes.reserve(nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i) {
      const Held &held = nodes_[nodes[i]]->value;
      FieldArg arg{&held.at[held.rep[r]], nullptr, nullptr};
      if (side == Side::Ranks) {
        site->firsts.push_back(arg_placements[i].block(r).first);
        site->wholes.push_back(arg_placements[i].whole(r));
        arg.first = &site->firsts.back();
        arg.whole = &site->wholes.back();
      }
      site->args.push_back(arg);
    }
    for (const Placement &place : result_placements)
      site->result_dims.push_back(side == Side::Ranks ? place.block(r).dims : place.whole(r));
    return site;
  };
  for (unsigned r = 0; r < world_.size(); ++r) {
    if (rep[r] != r)
      continue;
    std::unique_ptr<Site> site = site_of(r);
    std::optional<Arrays> made = op->run(site->args, site->result_dims, problem);
    if (!made && op->may_not_fit())
      return fail("gradients of several results that do not fit");
    if (!made) {
      wrong = true;
      return fail(fmt::format("{}: {} ({})", ir::print_value(program_, inst.result(0)), problem,
                              side == Side::Ranks ? fmt::format("rank {}", r) : "one device"));
    }
    for (size_t k = 0; k < results.size(); ++k)
      if (nodes_[results[k]]->value.rep[r] == r)
        nodes_[results[k]]->value.at[r] = std::move((*made)[k]);
  }
  llvm::SmallVector<bool, 4> wanted;
  for (ValueId value : operands.values)
    wanted.push_back(carries_gradient(value));
  if (differentiable)
    tape_.push_back([this, op, nodes, results, rep, wanted, site_of] {
      bool any = false;
      for (NodeId id : results)
        any |= !nodes_[id]->gradient.empty();
      for (unsigned r = 0; any && r < world_.size(); ++r) {
        if (rep[r] != r)
          continue;
        auto site = site_of(r);
        llvm::SmallVector<const Array *, 2> given;
        for (NodeId id : results)
          given.push_back(nodes_[id]->gradient.empty() || nodes_[id]->value.rep[r] != r
                              ? nullptr
                              : &nodes_[id]->gradient[r]);
        llvm::SmallVector<Array *, 4> to;
        for (size_t i = 0; i < nodes.size(); ++i)
          to.push_back(wanted[i] ? &gradient_of(nodes[i])[nodes_[nodes[i]]->value.rep[r]]
                                 : nullptr);
        op->pull(site->args, site->result_dims, given, to);
      }
    });
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    AxisSet axes = program_.types[typed(inst.result(r)).type].of(Kind::Partial) & pending;
    define(inst, r, axes ? summed(results[r], mesh, axes) : results[r]);
  }
  return true;
}

AxisSet Run::summed_axes(const ir::Inst &inst, llvm::ArrayRef<ValueId> operands) const {
  const ir::Context &context = program_.contexts[inst.context];
  const ir::Mesh &mesh = program_.meshes[context.mesh];
  AxisSet local = program_.local_axes(context), listed = local, addends, stated;
  for (ValueId value : operands) {
    const ir::Type &type = program_.types[typed(value).type];
    listed |= type.of(Kind::Varying) - type.sharded();
    addends |= type.of(Kind::Partial);
  }
  const ir::AttrValue *partial = program_.find(inst.attrs, "partial");
  if (partial && partial->form == ir::AttrForm::Axes)
    for (const ir::AxisRef &ref : program_.axis_refs[partial->as<ir::AxisRefsId>()].refs)
      if (std::optional<AxisId> axis = mesh.find(ref.axis))
        stated |= mesh.pieces_of(*axis);
  // A list of what no operand has as addends, claimed to be some where it leaves a region.
  for (uint32_t r = 0; r < inst.result_count; ++r)
    if (ir::TypeId claimed = program_.values[inst.result(r)].declared;
        claimed.valid() && program_.types[claimed].mesh() == context.mesh)
      stated |= (program_.types[claimed].of(Kind::Partial) & local) - addends;
  return stated & listed & mesh.typed_axes();
}

} // namespace spmd::soundness
