// Claims on results: types, scales, shapes and global extents, as the program states them.
#include "checker/walk/instruction/claims.h"

#include "rules/boundary/claims.h"
#include "rules/kinds/scale.h"
#include "rules/shapes/extent_facts.h"
#include "rules/shards/sizes.h"
#include "rules/violations/claims.h"
#include "rules/violations/operands.h"

#include "ir/claims.h"
#include "ir/dialect/print_type.h"
#include "ir/mesh/axis_scale.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;

// The claim on a result decides what is undecided, and is reported where it contradicts.
void Claims::judge(InstId id, ValueId value, Type &type, ir::TypeId declared, rules::Spec spec) {
  // A statement that joins pieces speaks of the axes of the region.
  ir::ContextId around =
      spec == rules::Spec::Joined ? ir::ContextId{0} : program_.insts[id].context;
  Type claimed = state_.seen(declared, around);
  if (claimed.mesh() != type.mesh())
    return;
  AxisSet region;
  if (spec == rules::Spec::Joined) {
    region = state_.local_axes(type.mesh(), program_.insts[id].context);
    type.drop_shards(region & claimed.sharded());
    region -= state_.local_axes(type.mesh(), around);
    take_as_addends(id, value, type, claimed, region);
  }
  rules::ClaimCheck check = rules::check_claim(type, claimed, type.gradient_free(), spec);
  if (AxisSet wrong = check.mismatched | check.unowned)
    state_.report(Place::inst(id),
                  rules::ClaimMismatch{value, state_.intern(type), declared, wrong});
  undecided_.meet(undecided_.result_row(value.index - program_.insts[id].first_result.index), type,
                  0, check.type, Place::inst(id), [&](AxisId axis, Kind other) {
                    return rules::ClaimMismatch{value, state_.as_kind(type, axis, other),
                                                state_.on_axes(claimed, axis), axis};
                  });
  if (claimed.scale.valid() && claimed.scale != program_.one())
    judge_scale(id, value, type, claimed, region);
  check.type.scale = type.scale;
  type = check.type;
}

// A scale that is stated is the one that follows, but on the axes of a region (restate_scale);
// where none is stated nothing is reported.
void Claims::judge_scale(InstId id, ValueId value, Type &type, const Type &claimed,
                         AxisSet region) {
  AxisSet axes = program_.meshes[type.mesh()].typed_axes();
  if (axes && type.zero().contains(axes)) // a zero is of every scale
    return;
  // What leaves a region that was put in its place is an `identity`; other ops keep what they were
  // given.
  if (!region || !state_.rules.resolve(program_.insts[id].op).computes(rules::Computes::Identity)) {
    scale_claim_differs(id, value, type, claimed.scale, claimed.scale);
    return;
  }
  Args entered; // not as they are seen in the region
  for (ValueId operand : state_.operands.values)
    entered.push_back(state_.known(operand));
  restate_scale(id, value, type, claimed, entered, region);
}

// Reports a declaration of another scale. `needed`: what is left of it to be held against the type.
bool Claims::scale_claim_differs(InstId id, ValueId value, const Type &type, ir::ScaleId needed,
                                 ir::ScaleId claimed) {
  std::string other = "its declaration states " + ir::print_scale(program_, claimed, type.mesh());
  std::optional<rules::Violation> differs =
      rules::scale_differs(program_, type, needed, std::move(other), {}, value);
  if (differs)
    state_.report(Place::inst(id), std::move(*differs));
  return differs.has_value();
}

// Along its own axes a region means lists, and has no factors but those that it makes itself: which
// they are of the whole is for the statement to say. What came in, and what is of other axes,
// stays.
void Claims::restate_scale(InstId id, ValueId result, Type &type, const Type &claimed,
                           llvm::ArrayRef<rules::TensorInfo> args, AxisSet own) {
  Type found = type;
  type.scale = claimed.scale;
  if (!found.scale.valid() || found.scale == claimed.scale || found.mesh() != claimed.mesh())
    return;
  for (const rules::TensorInfo &arg : args)
    if (ir::ScaleId entered = program_.types[arg.type].scale; entered.valid())
      own -= ir::axes_in(program_, entered, type.mesh());
  AxisSet axes =
      ir::axes_in(program_, ir::quotient(program_, found.scale, claimed.scale), type.mesh()) & own;
  found.scale = ir::without(program_, found.scale, type.mesh(), own);
  ir::ScaleId needed = ir::without(program_, claimed.scale, type.mesh(), own);
  if (scale_claim_differs(id, result, found, needed, claimed.scale) || axes.empty())
    return;
  Type stated = rules::restricted(claimed, axes);
  stated.scale = claimed.scale;
  state_.report(Place::inst(id), rules::UncheckedClaim{result, state_.intern(stated)});
}

// V that is stated to be a pending sum where it leaves a region: what each rank has is taken as its
// addend.
void Claims::take_as_addends(InstId id, ValueId value, Type &type, const Type &claimed,
                             AxisSet region) {
  AxisSet taken = (type.of(ir::Kind::Varying) - type.sharded()) & region &
                  (claimed.of(ir::Kind::Partial) - claimed.zero());
  if (!type.gradient_free())
    taken -= claimed.combining();
  if (taken.empty())
    return;
  type.set_kind(taken, ir::Kind::Partial);
  for (AxisId axis : taken)
    type.set_combiner(axis, claimed.combiner(axis));
  state_.report(Place::inst(id), rules::UncheckedClaim{value, state_.on_axes(claimed, taken)});
}

// A shape that is stated of a result is the one that follows.
void Claims::judge_shape(InstId id, ValueId value, ir::ShapeId claimed, ir::ShapeId found) {
  std::string what = "the declared and the actual shape of " + ir::print_value(program_, value);
  if (std::optional<rules::Violation> differs =
          rules::shape_differs(program_, std::move(what), claimed, found))
    state_.report(Place::inst(id), std::move(*differs));
}

// Global extents that the program states of a result must be those that follow; where nothing
// follows, they are believed.
void Claims::judge_sizes(InstId id, ValueId result, const Type &type) {
  const ir::Value &value = program_.values[result];
  if (program_.mode == ir::Mode::Local || type.unknown)
    return;
  AxisSet joined = type.sharded() & state_.local_axes(type.mesh(), program_.insts[id].context);
  bool equation = state_.rules.resolve(program_.insts[id].op).form == rules::OpForm::Equation;
  if (joined && !(equation && gives_even(id, state_.args, joined)))
    return judge_whole(id, type, state_.known(result), value.global_shape, joined);
  rules::DeclaredSizes stated = rules::declared_sizes(
      program_, type, result_.shapes[result.index], value.global_shape, program_.rank.value_or(0));
  if (stated.problem)
    state_.report(Place::inst(id), std::move(*stated.problem));
  else if (stated.sizes != result_.sizes[result.index])
    state_.report(
        Place::inst(id),
        rules::ShapeMismatch{
            "the declared and the actual global shape",
            ir::print_shape(program_, value.global_shape),
            ir::print_shape(program_, rules::global_shape(program_, type, state_.known(result)))});
}

// The same of the dimensions that none of the axes cuts whose pieces are joined by what is stated.
void Claims::judge_whole(InstId id, const Type &type, const rules::TensorInfo &found,
                         ir::ShapeId stated, AxisSet joined) {
  ir::ShapeId follows = rules::global_shape(program_, type, found);
  if (program_.mode != ir::Mode::Global || type.unknown || !follows.valid() ||
      !program_.shapes[stated].ranked)
    return;
  const ir::Shape &actual = program_.shapes[follows];
  ir::Shape claimed = program_.shapes[stated];
  bool lists = !(type.of(ir::Kind::Varying) - type.sharded()).empty();
  for (unsigned d = 0; d < std::min(claimed.dims.size(), actual.dims.size()); ++d) {
    const AxisSet cut = ir::set_of(ir::shards_of(type, d));
    if ((cut & joined) || (!cut && lists))
      claimed.dims[d] = actual.dims[d];
  }
  if (std::optional<rules::Violation> differs =
          rules::shape_differs(program_, "the declared and the actual global shape",
                               program_.shapes.add(std::move(claimed)), follows))
    state_.report(Place::inst(id), std::move(*differs));
}

bool Claims::gives_even(InstId id, llvm::ArrayRef<rules::TensorInfo> args, AxisSet axes) {
  for (const rules::TensorInfo &arg : args)
    if (arg.sizes.valid())
      for (const ir::UnevenDim &each : program_.shard_sizes[arg.sizes].dims)
        for (AxisId axis : ir::shards_of(program_.types[arg.type], each.dim))
          if (axes.contains(axis))
            return false;
  llvm::SmallDenseSet<uint32_t, 8> bodies;
  return divides_evenly(id, bodies);
}

// Collectives that cut may give ranks unequal parts. `bodies`: those that were looked at.
bool Claims::divides_evenly(InstId id, llvm::SmallDenseSet<uint32_t, 8> &bodies) {
  const ir::Inst &inst = program_.insts[id];
  if (state_.rules.resolve(inst.op).form == rules::OpForm::Transition) {
    OperandList operands;
    operands.read(program_, inst.operands);
    for (uint32_t r = 0; r < inst.result_count; ++r)
      if (r >= operands.values.size() ||
          result_.shapes[operands.values[r].index] != result_.shapes[inst.result(r).index])
        return false;
  }
  return llvm::all_of(program_.attrs[inst.attrs].attrs, [&](const ir::Attr &attr) {
    if (attr.value.form != ir::AttrForm::Function)
      return true;
    auto callee = attr.value.as<ir::FunctionId>();
    const ir::Function &body = program_.functions[callee];
    if (!bodies.insert(callee.index).second)
      return true;
    for (InstId each = body.body.first; each.index < body.body.last.index; ++each.index)
      if (!divides_evenly(each, bodies))
        return false;
    return !body.opaque;
  });
}

} // namespace spmd::checker
