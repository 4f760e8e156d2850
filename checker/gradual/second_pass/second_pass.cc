// What the second pass knows of declared values.
#include "checker/gradual/second_pass/second_pass.h"

#include "checker/walk/gradients/search.h"

#include "rules/bind.h"
#include "rules/shards/remesh.h"
#include "rules/transitions/call.h"

#include "ir/claims.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::Type;
using ir::ValueId;

SecondPass::SecondPass(WalkState &state)
    : state_(state), program_(state.program), result_(state.result),
      gradual_(*state.result.gradual), norms_(program_), lookups_(offsets_, zero_blocks_),
      numbering_(program_, gradual_.cuts().positions(), gradual_.by_kinds()),
      windows_(program_, gradual_.by_kinds()),
      edge_gradients_(program_, gradual_.by_kinds(), windows_),
      rings_(program_, gradual_.by_kinds(), state.rules), alone_(offsets_),
      routes_(program_, gradual_.cuts(), zero_blocks_), roots_(program_) {
  result_.proved.resize(program_.values.size());
  result_.scaled.resize(program_.values.size());
  result_.own.resize(program_.values.size());
}

void SecondPass::declare(ValueId value, const Type &type) {
  const AxisSet own = gradual_.cuts().owned(value) & (type.of(Kind::Varying) - type.sharded());
  routes_.own(value, own);
  const AxisSet sample = gradual_.cuts().sample(value) & (type.of(Kind::Varying) - type.sharded());
  result_.proved[value.index] =
      (known_axes(type) | own | sample) - gradual_.copies().differing(value);
  // A number that a rank has counted, such as its tokens, is an addend of that of all, if of
  // anything.
  const ir::Param *param = program_.find_param(value);
  for (AxisId axis : type.sharded())
    if (!is_float(value) && gradual_.cuts().origin(value, axis) == Origin::Assumed)
      rings_.guess(value);
  // A constant of which it is stated how it is cut is no batch: its blocks are those of one whole.
  const ir::TypeId stated = program_.values[value].declared;
  const bool is_block = stated.valid() && !program_.types[stated].sharded().empty();
  if (param && (param->role == ir::Role::Input || (param->role == ir::Role::Const && !is_block)))
    data_.insert(value.index);
  if (param && param->role == ir::Role::Buffer)
    buffers_.insert(value.index);
  const ir::ShapeId shape = gradual_.by_kinds().shapes[value.index];
  const bool one = shape.valid() && ir::element_count(program_.shapes[shape]) == 1;
  if (param && param->role == ir::Role::Const && one)
    result_.proved[value.index] |= type.of(Kind::Varying);
  // Which rows of a fused weight a rank has taken, its type cannot tell. Those of a batch may be
  // any, and what each rank has made by itself has no other rows than those it is used for.
  for (AxisId axis : type.sharded())
    if (param && param->role == ir::Role::Param && gradual_.cuts().inside(value, axis) &&
        !rules::axes_of(program_, param->separate, type.mesh()).contains(axis) &&
        !has_taken(*param, type, axis))
      result_.proved[value.index] -= axis;
  result_.scaled[value.index] = result_.proved[value.index];
  if (param)
    for (AxisId axis : program_.meshes[type.mesh()].typed_axes() - result_.proved[value.index])
      result_.lost.push_back(
          {axis, {Place::Form::Param, static_cast<uint32_t>(param - program_.params.data())}});
}

// Whether a rank has taken, out of the whole of a fused weight, the blocks that it is used for.
bool SecondPass::has_taken(const ir::Param &param, const Type &type, AxisId axis) const {
  return rules::axes_of(program_, param.taken, type.mesh()).contains(axis) &&
         type.dim(axis) == static_cast<unsigned>(param.taken_dim) &&
         gradual_.cuts().blocks(param.value, axis) == param.taken_blocks;
}

AxisSet SecondPass::drifted(const ir::Param &buffer, const Type &type) const {
  AxisSet axes =
      rules::axes_of(program_, buffer.drifted, type.mesh()) - gradual_.cuts().owned(buffer.value);
  for (AxisId axis : axes)
    if (type.dim(axis) || gradual_.cuts().dim(buffer.value, axis) ||
        !gradual_.updates().are_made_by_reading(buffer.value))
      axes -= axis;
  return axes;
}

bool SecondPass::is_number(ir::ShapeId shape) const {
  return shape.valid() && program_.shapes[shape].ranked && program_.shapes[shape].dims.empty();
}

bool SecondPass::is_float(ValueId value) const {
  const ir::ShapeId stated = program_.values[value].shape;
  const ir::ShapeId shape = stated.valid() ? stated : gradual_.by_kinds().shapes[value.index];
  return !shape.valid() || ir::differentiable(program_.shapes[shape].dtype);
}

// Kind, cut and scale are known there.
AxisSet SecondPass::known_axes(const Type &type) const {
  if (!type.scale.valid())
    return {};
  return program_.meshes[type.mesh()].typed_axes() - type.unknown -
         (type.of(Kind::Varying) - type.sharded());
}

} // namespace spmd::checker
