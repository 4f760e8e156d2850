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

// What one application of an op reads and makes, and how it is placed: enough for its backward.
struct Run::Application {
  const FieldOp *op = nullptr;
  Nodes nodes;
  llvm::SmallVector<NodeId, 2> results;
  std::vector<Placement> args, made;
  RankList rep;                      // ranks whose operands are the same
  llvm::SmallVector<bool, 4> wanted; // operands whose gradient somebody reads
};

// The operands of a rank, and the extents of its results.
struct Run::Site {
  std::vector<FieldArg> args;
  std::vector<Dims> firsts, wholes, result_dims;
};

std::unique_ptr<Run::Site> Run::site_of(const Application &of, unsigned r) {
  auto site = std::make_unique<Site>();
  site->firsts.reserve(of.nodes.size());
  site->wholes.reserve(of.nodes.size());
  for (size_t i = 0; i < of.nodes.size(); ++i) {
    const Held &held = nodes_[of.nodes[i]]->value;
    FieldArg arg{&held.at[held.rep[r]], nullptr, nullptr};
    if (side_ == Side::Ranks) {
      site->firsts.push_back(of.args[i].block(r).first);
      site->wholes.push_back(of.args[i].whole(r));
      arg.first = &site->firsts.back();
      arg.whole = &site->wholes.back();
    }
    site->args.push_back(arg);
  }
  for (const Placement &place : of.made)
    site->result_dims.push_back(side_ == Side::Ranks ? place.block(r).dims : place.whole(r));
  return site;
}

void Run::pull(const Application &of) {
  bool any = false;
  for (NodeId id : of.results)
    any |= !nodes_[id]->gradient.empty();
  for (unsigned r = 0; any && r < world_.size(); ++r) {
    if (of.rep[r] != r)
      continue;
    std::unique_ptr<Site> site = site_of(of, r);
    llvm::SmallVector<const Array *, 2> given;
    for (NodeId id : of.results)
      given.push_back(nodes_[id]->gradient.empty() || nodes_[id]->value.rep[r] != r
                          ? nullptr
                          : &nodes_[id]->gradient[r]);
    llvm::SmallVector<Array *, 4> to;
    for (size_t i = 0; i < of.nodes.size(); ++i)
      to.push_back(of.wanted[i] ? &gradient_of(of.nodes[i])[nodes_[of.nodes[i]]->value.rep[r]]
                                : nullptr);
    of.op->pull(site->args, site->result_dims, given, to);
  }
}

bool Run::equation(const ir::Inst &inst, uint32_t index) {
  std::string problem;
  Application of;
  of.op = setting_.field_op(inst, index, typing_, problem);
  if (!of.op)
    return fail(problem);
  checker::OperandList operands;
  operands.read(program_, inst.operands);
  of.nodes = seen_operands(inst);
  AxisSet local = program_.local_axes(program_.contexts[inst.context]);
  ir::MeshId mesh = program_.contexts[inst.context].mesh;
  AxisSet pending = side_ == Side::Whole ? summed_axes(inst, operands.values) : AxisSet();
  for (size_t i = 0; i < of.nodes.size(); ++i) // an addend counts once, whatever it is added to
    if (AxisSet axes = program_.types[typed(operands.values[i]).type].of(Kind::Partial) & pending)
      of.nodes[i] = first_of_zeros(of.nodes[i], mesh, axes);
  of.rep = classes(of.nodes);
  for (ValueId value : operands.values) {
    of.args.emplace_back(program_, world_, typed(value), local);
    of.wanted.push_back(carries_gradient(value));
  }
  bool differentiable = false;
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    of.made.emplace_back(program_, world_, typed(inst.result(r)), local);
    if (!of.made.back().known())
      return fail("extents that are no numbers");
    Nodes read; // a result that takes no value of an operand is no list for its sake
    for (unsigned i = 0; i < of.nodes.size(); ++i)
      if (of.op->reads(r, i))
        read.push_back(of.nodes[i]);
    of.results.push_back(add({classes(read), Arrays(world_.size())}));
    differentiable |= carries_gradient(inst.result(r));
  }
  if (!compute(inst, of))
    return false;
  if (differentiable)
    tape_.push_back([this, of] { pull(of); });
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    AxisSet axes = program_.types[typed(inst.result(r)).type].of(Kind::Partial) & pending;
    define(inst, r, axes ? summed(of.results[r], mesh, axes) : of.results[r]);
  }
  return true;
}

bool Run::compute(const ir::Inst &inst, const Application &of) {
  std::string problem;
  for (unsigned r = 0; r < world_.size(); ++r) {
    if (of.rep[r] != r)
      continue;
    std::unique_ptr<Site> site = site_of(of, r);
    std::optional<Arrays> made = of.op->run(site->args, site->result_dims, problem);
    if (!made && of.op->may_not_fit())
      return fail("gradients of several results that do not fit");
    if (!made) {
      wrong = true;
      return fail(fmt::format("{}: {} ({})", ir::print_value(program_, inst.result(0)), problem,
                              side_ == Side::Ranks ? fmt::format("rank {}", r) : "one device"));
    }
    for (size_t k = 0; k < of.results.size(); ++k)
      if (nodes_[of.results[k]]->value.rep[r] == r)
        nodes_[of.results[k]]->value.at[r] = std::move((*made)[k]);
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
