// Duals of transitions, the last axis first, and ops at the edges of the typed world.
#include "checker/backward/transitions.h"

#include "rules/boundary/boundary.h"
#include "rules/boundary/claims.h"
#include "rules/redistribute/transpose.h"
#include "rules/redistribute/verify.h"
#include "rules/shards/remesh.h"
#include "rules/shards/sizes.h"

#include "ir/claims.h"
#include "ir/support/arrays.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <numeric>

namespace spmd::checker {

std::optional<llvm::SmallVector<TransitionBackward::DualStep, 2>>
TransitionBackward::steps(const rules::Application &app, const rules::TransitionCall &call,
                          uint32_t operand) {
  const Type found = app.type(app.args[operand]);
  AxisSet lists = app.local_axes() | (found.of(Kind::Varying) - found.sharded());
  rules::TransitionOperand view{
      app, call, found, app.shape(app.args[operand]), nullptr, app.mesh().typed_axes() - lists};
  if (app.results[0].shape.valid())
    view.declared = &program_.shapes[app.results[0].shape];
  llvm::SmallVector<DualStep, 2> made;
  auto add = [&](const rules::Transition &row, WrittenKind src, WrittenKind dst, size_t written) {
    llvm::SmallVector<ir::AxisRef, 2> refs;
    AxisSet typed;
    for (AxisId axis : call.axes.written[written].axes) {
      refs.push_back({{}, app.mesh()[axis].name});
      typed |= axis;
    }
    bool same = !made.empty() && made.back().row == &row && made.back().src == src &&
                made.back().dst == dst;
    if (!same)
      made.push_back({&row, src, dst, {}, {}});
    made.back().axes.append(refs.begin(), refs.end());
    made.back().typed |= typed;
  };
  for (size_t i = 0; i < call.axes.written.size(); ++i) {
    std::optional<AxisId> first;
    if (!call.axes.written[i].axes.empty())
      first = call.axes.written[i].axes.front();
    rules::AxisEffect effect = rules::effect_of(view, i, first);
    if (effect.identity)
      continue;
    if (!effect.row)
      return std::nullopt;
    if (!effect.row->composed) {
      add(*effect.row, effect.src, effect.dst, i);
      continue;
    }
    rules::TransitionParts parts = rules::parts_of(*effect.row);
    WrittenKind between{.kind = parts.first->dst};
    add(*parts.first, effect.src, between, i);
    add(*parts.second, between, effect.dst, i);
  }
  return made;
}

// Where a step joined blocks of a value that do not follow the rule for what is cut, the lengths in
// which its dual cuts.
std::optional<AttrValue> TransitionBackward::lengths_of(ValueId of, const DualStep &step) {
  if (step.src.form != WrittenKind::Form::Shard || !sizes_[of.index].valid())
    return std::nullopt;
  const Type found = type(of);
  const ir::Mesh &mesh = program_.meshes[found.mesh()];
  const ir::UnevenDim *dim = nullptr;
  for (AxisId axis : step.typed)
    if (std::optional<unsigned> cut = found.dim(axis))
      dim = program_.shard_sizes[sizes_[of.index]].find(*cut);
  if (!dim || !dim->sizes.valid()) // blocks like the first one until nothing is left: by the rule
    return std::nullopt;
  llvm::SmallVector<int64_t, 8> lengths;
  for (const AttrValue &item : program_.lists[dim->sizes].items)
    lengths.push_back(item.as_integer());
  llvm::SmallVector<AxisId, 2> inner = ir::shards_of(found, dim->dim);
  llvm::erase_if(inner, [&](AxisId axis) { return !step.typed.contains(axis); });
  llvm::SmallVector<int64_t, 4> counts;
  for (AxisId axis : inner)
    counts.push_back(mesh[axis].size());
  auto group = static_cast<size_t>(rules::size_of(mesh, step.typed));
  ir::AttrList first;
  bool ruled = true;
  for (size_t at = 0; group && at + group <= lengths.size(); at += group) {
    llvm::ArrayRef<int64_t> blocks = ir::as_array(lengths).slice(at, group);
    int64_t sum = std::accumulate(blocks.begin(), blocks.end(), int64_t(0));
    llvm::SmallVector<int64_t, 16> starts = rules::nested_starts(sum, counts);
    for (size_t i = 0; i < group; ++i)
      ruled &= starts.size() == group + 1 && starts[i + 1] - starts[i] == blocks[i];
    for (size_t i = 0; at == 0 && i < group; ++i)
      first.items.push_back(AttrValue::integer(blocks[i]));
  }
  if (ruled)
    return std::nullopt;
  return AttrValue::list(program_.lists.add(std::move(first)));
}

// The attributes of the dual of one step; none if the call states something that has no inverse.
std::optional<ir::AttrsId> TransitionBackward::dual_attrs(const Inst &inst, const DualStep &step,
                                                          const rules::Transition &row,
                                                          ValueId of) {
  auto word = [](Kind kind, WrittenKind of_forward) {
    of_forward.combiner = ir::Combiner::Sum;
    return AttrValue::kind(kind == Kind::Varying ? of_forward : WrittenKind{.kind = kind});
  };
  llvm::SmallVector<std::pair<llvm::StringRef, AttrValue>, 8> list = {
      {"src", word(row.src, step.dst)}, {"dst", word(row.dst, step.src)}};
  if (!step.axes.empty())
    list.push_back({"axis", axes_attr(step.axes)});
  else // of size 1, all of them
    for (llvm::StringRef key : {"axis", "group"})
      if (const AttrValue *written = program_.find(inst.attrs, key))
        list.push_back({key, *written});
  if (row.expert)
    list.push_back({"expert", AttrValue::boolean(true)});
  static constexpr std::pair<llvm::StringLiteral, llvm::StringLiteral> kTurned[] = {
      {"split_dim", "concat_dim"},
      {"concat_dim", "split_dim"},
      {"in_splits", "out_splits"},
      {"out_splits", "in_splits"}};
  for (const auto &pair : kTurned)
    if (const AttrValue *value = program_.find(inst.attrs, pair.first))
      list.push_back({pair.second, *value});
  if (const AttrValue *perm = program_.find(inst.attrs, "perm")) {
    if (perm->form != ir::AttrForm::List)
      return std::nullopt;
    ir::AttrList turned;
    for (const AttrValue &pair : program_.lists[perm->as<ir::AttrListId>()].items) {
      if (pair.form != ir::AttrForm::List)
        return std::nullopt;
      ir::AttrList ends = program_.lists[pair.as<ir::AttrListId>()];
      std::reverse(ends.items.begin(), ends.items.end());
      turned.items.push_back(AttrValue::list(program_.lists.add(std::move(ends))));
    }
    list.push_back({"perm", AttrValue::list(program_.lists.add(std::move(turned)))});
  }
  if (std::optional<AttrValue> lengths = lengths_of(of, step)) {
    llvm::StringRef key = row.collective == rules::Collective::AllToAll ? "in_splits" : "splits";
    llvm::erase_if(list, [&](const auto &entry) { return entry.first == key; });
    list.push_back({key, *lengths});
  }
  llvm::SmallVector<llvm::StringRef, 12> without = {
      "axis", "group",     "src",        "dst",  "expert", "split_dim", "concat_dim",
      "op",   "in_splits", "out_splits", "perm", "vjp",    "to"};
  return attrs(list, inst.attrs, without);
}

// The gradient taken back through one step.
ValueId TransitionBackward::dual(const Inst &inst, const DualStep &step,
                                 const rules::TransitionCall &call, ValueId gradient, ValueId of,
                                 const InsertionPoint &outside) {
  const rules::Transition *row = rules::dual_of(*step.row);
  if (!row)
    return {};
  std::optional<ir::AttrsId> with = dual_attrs(inst, step, *row, of);
  if (!with)
    return {};
  InsertionPoint around = outside;
  if (row->dst == Kind::Varying && step.src.form != WrittenKind::Form::Shard)
    around.context = local_on(step.typed, outside.context);
  ValueId made = put(row->name(), Operand::value(gradient), *with, around, stem(of));
  // The backward of an average divides too.
  bool average = call.combiner == ir::Combiner::Avg && step.row->src == Kind::Partial;
  if (!average || !made.valid() || step.typed.empty())
    return made;
  ir::MeshId mesh = program_.contexts[inst.context].mesh;
  ir::Scale size;
  for (AxisId axis : step.typed)
    size.factors.push_back({program_.meshes[mesh][axis].name, 1});
  llvm::sort(size.factors, [&](const ir::ScaleFactor &a, const ir::ScaleFactor &b) {
    return program_.strings[a.base] < program_.strings[b.base];
  });
  ir::ScaleId by = program_.scales.add(*ir::inverse(size));
  return put(rules::boundary_name(rules::Boundary::Scale), Operand::value(made),
             attrs({{"by", AttrValue::scale(by)}}), around, stem(of));
}

// A call that is one step over all of its axes.
ValueId TransitionBackward::joint_dual(const rules::Application &app,
                                       const rules::TransitionCall &call, uint32_t operand,
                                       ValueId result, ValueId gradient, ValueId of,
                                       const InsertionPoint &around) {
  const Type found = app.type(app.args[operand]);
  rules::TransitionOperand view{
      app, call, found, app.shape(app.args[operand]), nullptr, app.global_axes()};
  rules::redistribute::Step step{.op = call.op};
  step.before = program_.types.add(found);
  step.after = program_.types.add(type(result));
  for (size_t i = 0; i < call.axes.written.size(); ++i)
    for (AxisId axis : call.axes.written[i].axes) {
      rules::AxisEffect effect = rules::effect_of(view, i, axis);
      if (!effect.row)
        return {};
      step.axes.push_back(axis);
      step.src.push_back(effect.src);
      step.dst.push_back(effect.dst);
    }
  if (step.axes.empty())
    return put("identity", Operand::value(gradient), {}, around, stem(of));
  rules::redistribute::Step dual = rules::redistribute::transpose(program_, step);
  return put(rules::name_of(dual.op), Operand::value(gradient),
             rules::redistribute::attributes_of(program_, dual), around, stem(of));
}

// The backward that a redistribute states: to that type, then to the dual of the operand.
ValueId TransitionBackward::by_stated(const rules::redistribute::BackwardRedistribution &way,
                                      ValueId gradient, ValueId of, const InsertionPoint &around) {
  for (ir::TypeId type : {way.by, way.to}) {
    ir::Type wanted = program_.types[type];
    wanted.set_gradient_free(false);
    ir::Claim claim{program_.types.add(wanted), {}, {}};
    if (way.shape.valid())
      claim.shape = rules::redistribute::arg_of(program_, type, way.shape).shape;
    gradient =
        put(rules::name_of(rules::TransitionOp::Redistribute), Operand::value(gradient),
            attrs({{"type", AttrValue::claim(program_.claims.add(claim))}}), around, stem(of));
    if (!gradient.valid())
      break;
  }
  return gradient;
}

bool TransitionBackward::through_transition(const Inst &inst, const rules::ResolvedOp &op,
                                            llvm::ArrayRef<ValueId> results, Gradients &gradients) {
  OperandList operands;
  operands.read(program_, inst.operands);
  ir::MeshId mesh = program_.contexts[inst.context].mesh;
  llvm::SmallVector<rules::TensorInfo, 2> args;
  for (ValueId value : operands.values) {
    args.push_back(arg(value));
    if (type(value).mesh() != mesh)
      args.back().type = program_.types.add(rules::remesh(program_, type(value), mesh, {}).type);
  }
  llvm::SmallVector<rules::ResultClaim, 2> claims;
  for (uint32_t i = 0; i < inst.result_count; ++i)
    claims.push_back({shapes_[inst.result(i).index], {}, {}});
  rules::Application app{program_, op, inst.attrs, inst.context, operands.slots, args, claims};
  llvm::SmallVector<uint32_t, 2> moved = rules::operands_of(app);
  InsertionPoint around{inst.context, inst.loc, inst.first_result};
  if (rules::redistribute::stated_gradient(app) && moved.size() == 1) {
    ValueId value = operands.values[moved[0]];
    std::optional<rules::redistribute::BackwardRedistribution> way =
        rules::redistribute::backward_redistribution(app, args[moved[0]], arg(inst.result(0)));
    if (way && results[0].valid() && active_.count(value.index)) {
      ValueId gradient = by_stated(*way, results[0], value, around);
      if (!gradient.valid())
        return fail(inst, fmt::format("states a backward that cannot be typed ({})", refused_));
      give(gradients, value, gradient, around);
    }
    return true;
  }
  rules::Outcome ignored;
  std::optional<rules::TransitionCall> call = rules::read_call(app, ignored);
  if (!call)
    return fail(inst, "states axes or words that cannot be read");
  for (size_t k = 0; k < moved.size() && k < results.size(); ++k) {
    ValueId value = operands.values[moved[k]], gradient = results[k];
    if (!gradient.valid() || !active_.count(value.index))
      continue;
    if (call->combiner && *call->combiner != ir::Combiner::Sum &&
        *call->combiner != ir::Combiner::Avg)
      return fail(inst, fmt::format("joins by {}, which has no derivative here",
                                    ir::word(*call->combiner)));
    if (call->joint()) {
      gradient = joint_dual(app, *call, moved[k], inst.result(static_cast<uint32_t>(k)), gradient,
                            value, around);
      if (!gradient.valid())
        return fail(inst, fmt::format("has a backward that cannot be typed ({})", refused_));
      give(gradients, value, gradient, around);
      continue;
    }
    std::optional<llvm::SmallVector<DualStep, 2>> path = steps(app, *call, moved[k]);
    if (!path)
      return fail(inst, "is no transition of the table");
    for (const DualStep &step : llvm::reverse(*path)) {
      gradient = dual(inst, step, *call, gradient, value, around);
      if (!gradient.valid())
        return fail(inst, fmt::format("has a backward that cannot be typed ({})", refused_));
    }
    if (path->empty())
      gradient = put("identity", Operand::value(gradient), {}, around, stem(value));
    give(gradients, value, gradient, around);
  }
  return true;
}

// The gradient as it is; where parts that were taken out of a cut value go back, how they join.
ValueId TransitionBackward::pass_on(ValueId gradient, ValueId of, const InsertionPoint &around) {
  Type found = type(gradient), want = wanted(of);
  AxisSet joined = (found.of(ir::Kind::Varying) - found.sharded()) & want.sharded();
  if (joined.empty() || found.mesh() != want.mesh())
    return put("identity", Operand::value(gradient), {}, around, stem(of));
  want = rules::restricted(want, joined);
  want.scale = found.scale;
  want.set_gradient_free(false);
  ir::Claim claim{program_.types.add(want), {}, {}};
  if (ir::ShapeId whole = program_.values[of].global_shape; whole.valid())
    claim.shape = shapes_[gradient.index], claim.global_shape = whole;
  return put(rules::boundary_name(rules::Boundary::FromLocal), Operand::value(gradient),
             attrs({{"type", AttrValue::claim(program_.claims.add(claim))}}), around, stem(of));
}

// Ops at the edges of the typed world.
bool TransitionBackward::through_boundary(const Inst &inst, const rules::ResolvedOp &op,
                                          llvm::ArrayRef<ValueId> results, Gradients &gradients) {
  OperandList operands;
  operands.read(program_, inst.operands);
  InsertionPoint around{inst.context, inst.loc, inst.first_result};
  ValueId value = operands.values.empty() ? ValueId() : operands.values.front();
  if (!value.valid() || !active_.count(value.index) || results.empty() || !results[0].valid())
    return true;
  ValueId made;
  if (rules::is_same_data(op.boundary)) {
    // Kinds of the gradient follow by `fit`; how pieces join is stated on the result.
    InsertionPoint there = around;
    there.context = context_on(wanted(value).mesh(), inst.context);
    made = pass_on(results[0], value, there);
  } else if (rules::is_own_backward(op.boundary)) {
    made = put(rules::boundary_name(op.boundary), Operand::value(results[0]), attrs({}, inst.attrs),
               around, stem(value));
  } else {
    return fail(inst, "has no derivative");
  }
  if (!made.valid())
    return fail(inst, fmt::format("has a gradient that cannot be typed ({})", refused_));
  give(gradients, value, made, around);
  return true;
}

} // namespace spmd::checker
