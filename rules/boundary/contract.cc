// Contracts resolved and compared. Each axis on its own; unknown ones are silent.
#include "rules/boundary/contract.h"
#include "rules/boundary/claims.h"

#include "rules/kinds/scale.h"
#include "rules/shards/remesh.h"
#include "rules/violations/gradients.h"

#include "ir/claims.h"

namespace spmd::rules {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::Type;

namespace {

// A claim on the parameter's mesh; none if nothing is stated, or on another mesh.
std::optional<Type> stated_type(ir::Program &program, ir::ClaimId claim, ir::MeshId mesh) {
  ir::TypeId id = claim.valid() ? program.claims[claim].type : ir::TypeId();
  if (!id.valid() || program.types[id].mesh() != mesh)
    return std::nullopt;
  return ir::canonical_scale(program, program.types[id]).without_shards(program.local_axes(mesh));
}

ir::TypeId shown(ir::Program &program, const Type &type, AxisSet axes) {
  return program.types.add(restricted(type, axes));
}

// What both say, on axes where both say something.
AxisSet known_to_both(const Type &a, const Type &b) {
  return (a.claimed() - a.unknown) & (b.claimed() - b.unknown);
}

// A zero is of any kind, but a part of it is not all of it.
AxisSet differing(const Type &found, const Type &needed) {
  ClaimCheck check = check_claim(found, needed, true);
  return check.mismatched - (found.zero() - needed.sharded());
}

// The step type where nothing else is stated: the parameter's own.
Type complete(const Type &stated, const Type &own) {
  Type made = stated;
  AxisSet open = own.claimed() - stated.claimed();
  for (const ir::KindInfo &row : ir::kKinds)
    made.of(row.kind) |= own.of(row.kind) & open;
  made.unknown |= own.unknown & open;
  for (AxisId axis : open &own.sharded())
    made.set_shard(axis, *own.dim(axis), own.order(axis));
  return made;
}

// The axes on which the optimizer may not need what is stated, which is a shard of what is whole or
// the same, or on which nothing is stated.
AxisSet forbidden(const Type &stated, const Type &own, AxisSet local) {
  AxisSet both = known_to_both(stated, own);
  AxisSet whole = own.same_on_all_ranks();
  AxisSet sharded = whole & (stated.sharded() | (stated.of(Kind::Varying) & local));
  AxisSet silent = (own.claimed() - own.unknown) - stated.claimed();
  return (differing(stated, own) - sharded) | (both & own.of(Kind::Partial) & ~own.zero()) | silent;
}

} // namespace

void check_declared_gradient(ir::Program &program, ir::ValueId value, const Type &type,
                             Type declared, llvm::SmallVectorImpl<Violation> &out) {
  Type dual = type.dual();
  take_order(declared, dual);
  AxisSet axes = program.meshes[type.mesh()].typed_axes() & type.claimed();
  axes -= type.unknown | (type.either() - type.zero()) | type.combining();
  if (declared.mesh() != type.mesh())
    return;
  AxisSet silent = axes - declared.claimed();
  AxisSet wrong = ((axes & check_claim(declared, dual, false).mismatched) | silent);
  if (wrong)
    out.push_back(GradientTypeMismatch{value, shown(program, declared, wrong),
                                       shown(program, dual, wrong), wrong});
}

Contract contract_of(ir::Program &program, const ir::GradContract &stated, ir::ValueId param,
                     const Type &type, llvm::SmallVectorImpl<Violation> &out) {
  ir::MeshId mesh = type.mesh();
  Type own = type.without_shards(program.local_axes(mesh));
  Contract made{param, own.dual(), {}, own, {}};
  made.gradient.set_unknown((own.either() - own.zero()) | own.combining());
  made.gradient.scale = ir::quotient(program, program.one(), own.scale);
  if (std::optional<Type> grad = stated_type(program, stated.grad, mesh)) {
    check_declared_gradient(program, param, own, *grad, out);
    if (grad->scale != program.one())
      made.stated = grad->scale;
  }
  if (std::optional<Type> step = stated_type(program, stated.step, mesh)) {
    take_order(*step, own);
    AxisSet wrong = forbidden(*step, own, program.local_axes(mesh));
    Type needed = complete(*step, own);
    if (wrong)
      out.push_back(GradientTypeMismatch{param, shown(program, *step, wrong),
                                         shown(program, own, wrong), wrong});
    needed.set_unknown(wrong);
    made.needed = needed;
  }
  for (const ir::Sync &sync : stated.sync)
    made.sync.push_back({axes_of(program, sync.axes, mesh), sync.op == ir::Combiner::Avg});
  return made;
}

Type as_addends(const ir::Program &program, Type gradient, const Type &dual) {
  AxisSet local = program.local_axes(gradient.mesh());
  AxisSet addends = local & gradient.of(Kind::Varying) & dual.of(Kind::Partial);
  if (gradient.mesh() == dual.mesh())
    gradient.set_kind(addends - dual.zero(), Kind::Partial);
  return gradient;
}

Type after_sync(ir::Program &program, const Contract &contract, Type gradient,
                llvm::SmallVectorImpl<Violation> &out) {
  gradient = as_addends(program, gradient, contract.gradient);
  if (gradient.mesh() != contract.needed.mesh())
    return gradient;
  size_t first = out.size();
  for (const SyncedAxes &sync : contract.sync)
    for (AxisId axis : sync.axes &gradient.claimed() & ~gradient.unknown & ~gradient.zero()) {
      Kind kind = gradient.kind(axis).value_or(Kind::Replicate);
      if (kind == Kind::Partial) {
        gradient.set_kind(axis, contract.needed.kind(axis).value_or(Kind::Replicate));
        if (std::optional<unsigned> dim = contract.needed.dim(axis))
          for (AxisId other : gradient.of(Kind::Varying) & contract.needed.sharded())
            if (contract.needed.dim(other) == dim && (other == axis || gradient.dim(other) == dim))
              gradient.set_shard(other, *dim, contract.needed.order(other));
        if (sync.average)
          gradient.scale =
              ir::quotient(program, gradient.scale, ir::axis_scale(program, gradient.mesh(), axis));
        continue;
      }
      bool same = kind != Kind::Varying;
      if (same && sync.average)
        continue;
      add_merged(out, first,
                 OverreducedGradient{
                     contract.param,
                     ir::kind_word(gradient, axis).value_or(ir::WrittenKind{.kind = kind}), axis});
      gradient.drop_shards(axis);
      gradient.set_unknown(axis);
    }
  gradient.renumber_shard_orders();
  return gradient;
}

void check_step(ir::Program &program, const Contract &contract, const Type &gradient,
                OperandIndex operand, llvm::SmallVectorImpl<Violation> &out) {
  const Type &needed = contract.needed;
  if (gradient.mesh() != needed.mesh())
    return;
  AxisSet wrong = differing(gradient, needed);
  wrong |= known_to_both(gradient, needed) & needed.of(Kind::Partial) & ~needed.zero();
  AxisSet pending =
      wrong & gradient.of(Kind::Partial) & ~gradient.zero() & ~needed.of(Kind::Partial);
  if (pending)
    out.push_back(UnreducedGradient{contract.param, operand, pending});
  if (AxisSet other = wrong - pending)
    out.push_back(GradientTypeMismatch{contract.param, shown(program, gradient, other),
                                       shown(program, needed, other), other});
  if (wrong)
    return;
  std::string asked = ir::print_scale(program, needed.scale, needed.mesh());
  if (std::optional<Violation> differs =
          scale_differs(program, gradient, needed.scale, "the optimizer needs " + asked, operand))
    out.push_back(std::move(*differs));
}

} // namespace spmd::rules
