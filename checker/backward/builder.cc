// Instructions that a backward puts out, typed as they are: what is summed across ranks must be
// stated, and gradients that meet must have one type.
#include "checker/backward/builder.h"

#include "rules/ops/registry.h"
#include "rules/shards/remesh.h"
#include "rules/shards/shards.h"
#include "rules/transitions/transition.h"
#include "rules/violations/shards.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

ir::AttrsId BackwardBuilder::attrs(llvm::ArrayRef<std::pair<llvm::StringRef, AttrValue>> list,
                                   ir::AttrsId base, llvm::ArrayRef<llvm::StringRef> without) {
  ir::AttrDict dict;
  if (base.valid())
    for (const ir::Attr &attr : program_.attrs[base].attrs)
      if (!llvm::is_contained(without, program_.strings[attr.key]))
        dict.attrs.push_back(attr);
  for (const auto &entry : list) {
    ir::StringId key = program_.strings.add(entry.first);
    llvm::erase_if(dict.attrs, [&](const ir::Attr &attr) { return attr.key == key; });
    dict.attrs.push_back({key, entry.second});
  }
  ir::sort_canonically(dict, program_.strings);
  return program_.attrs.add(std::move(dict));
}

std::optional<rules::TensorInfo> BackwardBuilder::ask(const Inst &inst, AxisSet *summed) {
  OperandList operands;
  operands.read(program_, inst.operands);
  ir::MeshId mesh = program_.contexts[inst.context].mesh;
  llvm::SmallVector<rules::TensorInfo, 8> args;
  const rules::ResolvedOp &op = rules_.resolve(inst.op);
  for (ValueId value : operands.values) {
    args.push_back(arg(value));
    if (type(value).mesh() == mesh || op.boundary == rules::Boundary::ReinterpretMesh)
      continue;
    rules::Remeshed seen = rules::remesh(program_, type(value), mesh, {});
    if (seen.violation)
      return std::nullopt;
    args.back().type = program_.types.add(seen.type);
  }
  const ir::Value &made = program_.values[inst.first_result];
  rules::ResultClaim claim{made.shape, made.declared, made.global_shape};
  const rules::Outcome &outcome =
      rules_.apply({program_, op, inst.attrs, inst.context, operands.slots, args, claim, false});
  refused_.clear();
  for (const rules::Violation &violation : outcome.violations) {
    if (rules::info(violation).severity == rules::Severity::Error)
      refused_ = rules::info(violation).name;
    if (const auto *unstated = violation.as<rules::UnstatedPartial>(); unstated && summed)
      *summed |= rules::axes_of(violation);
  }
  if (!refused_.empty())
    return std::nullopt;
  ir::ShapeId shape = made.shape.valid() ? made.shape : outcome.shapes[0];
  return rules::TensorInfo{outcome.types[0], shape, outcome.sizes[0]};
}

ValueId BackwardBuilder::put(ir::OpNameId op, llvm::ArrayRef<Operand> operands, ir::AttrsId attrs,
                             const InsertionPoint &around, std::string stem, AxisSet *summed,
                             const std::optional<Type> &claimed) {
  Inst inst;
  inst.op = op;
  inst.attrs = attrs.valid() ? attrs : program_.no_attrs();
  inst.operands = program_.operand_lists.add(operands);
  inst.loc = around.loc;
  inst.bwd_of = around.of;
  inst.context = around.context;
  inst.phase = ir::Phase::Backward;
  inst.result_count = 1;
  // A refused instruction leaves its value, without a name that others would have to avoid.
  inst.first_result = program_.values.add({});
  if (claimed)
    program_.values[inst.first_result].declared = program_.types.add(*claimed);
  std::optional<rules::TensorInfo> made = ask(inst, summed);
  program_.values[inst.first_result].declared = {}; // `give` states it with its scale
  if (!made)
    return {};
  program_.values[inst.first_result].name = copier_.fresh_name(std::move(stem));
  learn(inst.first_result, *made);
  out_.add(inst, 0);
  return inst.first_result;
}

ValueId BackwardBuilder::reinterpret(ValueId gradient, AxisSet axes, Kind src, Kind dst,
                                     const InsertionPoint &around) {
  auto word = [](Kind kind) { return AttrValue::kind({.kind = kind}); };
  const rules::Transition *row = rules::find_transition(rules::TransitionOp::Reinterpret, src, dst);
  llvm::SmallVector<std::pair<llvm::StringRef, AttrValue>, 4> list = {
      {"axis", axes_attr(refs_of(type(gradient).mesh(), axes))},
      {"src", word(src)},
      {"dst", word(dst)}};
  if (row && row->expert)
    list.push_back({"expert", AttrValue::boolean(true)});
  InsertionPoint there = around;
  if (dst == Kind::Varying)
    there.context = local_on(axes, around.context);
  return put(rules::name_of(rules::TransitionOp::Reinterpret), Operand::value(gradient),
             attrs(list), there, name(gradient).substr(1));
}

// The gradient as the dual of its value's type, on the mesh of the value. What differs between
// ranks, or is the same on all of them, where the dual is P is an addend; what is the same on all
// where it is V is one value per rank.
ValueId BackwardBuilder::fit(ValueId gradient, ValueId of, const InsertionPoint &around) {
  Type want = wanted(of);
  InsertionPoint there = around;
  there.context = context_on(want.mesh(), around.context);
  if (gradient.valid() && type(gradient).mesh() != want.mesh())
    gradient = put("identity", Operand::value(gradient), {}, there, stem(of));
  if (!gradient.valid())
    return gradient;
  Type made = type(gradient);
  AxisSet addends = want.of(Kind::Partial) - made.of(Kind::Partial);
  AxisSet lists = want.of(Kind::Varying) - want.sharded() - made.of(Kind::Varying);
  auto change = [&](AxisSet axes, Kind src, Kind dst) {
    if (axes && gradient.valid())
      gradient = reinterpret(gradient, axes, src, dst, there);
  };
  AxisSet local = local_in(there.context);
  AxisSet listed = local | (made.of(Kind::Varying) - made.sharded());
  change(addends & made.of(Kind::Varying) & listed, Kind::Varying, Kind::Partial);
  change(addends & made.of(Kind::Replicate), Kind::Replicate, Kind::Partial);
  change((lists | (want.sharded() & local)) & made.of(Kind::Replicate), Kind::Replicate,
         Kind::Varying);
  return gradient;
}

// States the type that a gradient has. A statement on a value made in a region says how its pieces
// join.
void BackwardBuilder::state(ValueId gradient, ValueId of) {
  ir::Value &made = program_.values[gradient];
  ir::Type want = wanted(of);
  want.scale = type(gradient).scale;
  want.set_gradient_free(false);
  if (made.declared.valid())
    return;
  made.declared = program_.types.add(want);
  made.global_shape = program_.values[of].global_shape;
  want.set_gradient_free(type(gradient).gradient_free());
  learn(gradient, {program_.types.add(want), shapes_[gradient.index], sizes_[of.index]});
}

// Adds to what is known of the gradient of a value.
void BackwardBuilder::give(Gradients &gradients, ValueId of, ValueId gradient,
                           const InsertionPoint &around) {
  if (!gradient.valid())
    return;
  gradient = fit(gradient, of, around);
  if (!gradient.valid())
    return lose(of);
  state(gradient, of);
  gradients[of.index].push_back(gradient);
}

// A part of a gradient that cannot be typed is no zero.
void BackwardBuilder::lose(ValueId of) {
  if (!problem_)
    problem_ = NoBackward{{},
                          "what is known of the gradient of " + name(of) +
                              " cannot be put together (" + refused_ + ")"};
}

// The sum of all that was given; none if nothing was. Lists are added where they are lists; pieces
// of a tensor, which may be uneven, as a tensor.
ValueId BackwardBuilder::total(Gradients &gradients, ValueId of) {
  auto found = gradients.find(of.index);
  if (found == gradients.end())
    return {};
  llvm::SmallVector<ValueId, 2> &parts = found->second;
  const Type want = wanted(of);
  auto found_in = made_in_.find(of.index);
  ir::ContextId context = found_in == made_in_.end() ? ir::ContextId{0} : found_in->second;
  if (want.sharded() & local_in(context_on(want.mesh(), context)))
    context = ir::ContextId{0};
  InsertionPoint around{context_on(want.mesh(), context), {}, {}};
  while (parts.size() > 1) {
    ValueId sum =
        put("add", {Operand::value(parts[0]), Operand::value(parts[1])}, {}, around, stem(of));
    if (!sum.valid()) {
      lose(of);
      return {};
    }
    program_.values[sum].declared = program_.values[parts[0]].declared;
    parts.erase(parts.begin());
    parts[0] = sum;
  }
  // A parameter of a body stands before the value whose gradient it is.
  if (!program_.values[parts[0]].grad_of.valid() && !parameters_.count(parts[0].index))
    program_.values[parts[0]].grad_of = of;
  return parts[0];
}

} // namespace spmd::checker
