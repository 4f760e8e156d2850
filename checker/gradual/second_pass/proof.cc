// A value is proved on an axis where all operands are, its rule applied there, and what it is
// follows.
#include "checker/gradual/second_pass/proof.h"

#include "rules/shards/remesh.h"

#include "ir/claims.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;

// The operand with which a result of a loop begins, if it is one that all turns hand on.
std::optional<uint32_t> Proof::carry_of(const ir::Inst &inst, uint32_t result) const {
  const ir::AttrValue *same = program_.find(inst.attrs, "consts"),
                      *carries = program_.find(inst.attrs, "carry");
  if (!same || !carries || same->form != ir::AttrForm::Integer ||
      carries->form != ir::AttrForm::Integer || int64_t(result) >= carries->as_integer())
    return std::nullopt;
  return static_cast<uint32_t>(same->as_integer()) + result;
}

// The axes on which all that a flat tensor consists of is known.
AxisSet Proof::known_pieces(ValueId value, ir::MeshId mesh) const {
  llvm::ArrayRef<Pieces::Piece> pieces = gradual_.pieces().of(value);
  AxisSet axes = pieces.empty() ? AxisSet() : ~gradual_.pieces().changed(value);
  for (const Pieces::Piece &piece : pieces) {
    const Type &type = program_.types[result_.types[piece.of.index]];
    axes &= type.mesh() == mesh ? known_axes(type) : AxisSet();
  }
  return axes;
}

// `own`: along which the value is a rank's own.
void Proof::declare(ValueId value, const Type &type, AxisSet own) {
  const AxisSet sample = gradual_.cuts().sample(value) & (type.of(Kind::Varying) - type.sharded());
  AxisSet &proved = result_.proved[value.index];
  proved = (known_axes(type) | own | sample) - gradual_.copies().differing(value);
  // A number that a rank has counted, such as its tokens, is an addend of that of all, if of
  // anything.
  const ir::Param *param = program_.find_param(value);
  const ir::ShapeId shape = gradual_.by_kinds().shapes[value.index];
  const bool is_one = shape.valid() && ir::element_count(program_.shapes[shape]) == 1;
  if (param && param->role == ir::Role::Const && is_one)
    proved |= type.of(Kind::Varying);
  // Which rows of a fused weight a rank has taken, its type cannot tell. Those of a batch may be
  // any, and what each rank has made by itself has no other rows than those it is used for.
  for (AxisId axis : type.sharded())
    if (param && param->role == ir::Role::Param && gradual_.cuts().inside(value, axis) &&
        !rules::axes_of(program_, param->separate, type.mesh()).contains(axis) &&
        !has_taken(*param, type, axis))
      proved -= axis;
  result_.scaled[value.index] = proved;
  if (param)
    for (AxisId axis : program_.meshes[type.mesh()].typed_axes() - proved)
      result_.lost.push_back(
          {axis, {Place::Form::Param, static_cast<uint32_t>(param - program_.params.data())}});
}

// Whether a rank has taken, out of the whole of a fused weight, the blocks that it is used for.
bool Proof::has_taken(const ir::Param &param, const Type &type, AxisId axis) const {
  return rules::axes_of(program_, param.taken, type.mesh()).contains(axis) &&
         type.dim(axis) == static_cast<unsigned>(param.taken_dim) &&
         gradual_.cuts().blocks(param.value, axis) == param.taken_blocks;
}

// The axes on which all operands are proved, and what bodies return.
AxisSet Proof::proved_of_operands(InstId id, llvm::ArrayRef<ValueId> returned,
                                  const Type &type) const {
  AxisSet axes = ~AxisSet();
  const AxisSet written = parts_.origins.written_rows(id, type);
  for (uint32_t i = 0; i < state_.operands.values.size(); ++i) {
    const ValueId operand = state_.operands.values[i];
    if (!now_.unread.contains(i))
      axes &= result_.proved[operand.index] | (i == 0 ? written : AxisSet()) |
              parts_.experts.counted(operand) | parts_.root.proved_on_root(operand);
  }
  for (ValueId each : returned)
    axes &= result_.proved[each.index];
  return axes;
}

void Proof::prove(InstId id, ValueId value, uint32_t index, const Type &type) {
  const AxisSet axes = program_.meshes[type.mesh()].typed_axes(), known = known_axes(type);
  const llvm::SmallVector<ValueId, 2> returned = returned_as(id, value);
  const AxisSet before = proved_of_operands(id, returned, type);
  const Lookups::Facts &lookup = parts_.lookups.found();
  AxisSet follows = known | parts_.experts.owned(value) | parts_.norms.roots(value) |
                    lookup.looked_up | lookup.shared;
  if (index == 0)
    follows |= parts_.own_counts.extremes() | parts_.lookups.offsets().axes(value) |
               parts_.edges.in_place();
  AxisSet proved = (axes & before & follows) - now_.reported - now_.open;
  proved |= parts_.joined.proved(index, known);
  if (const Rings::Known *round = parts_.rings.facts().known(index); round && round->proved)
    if (!round->dim || ir::shards_of(type, *round->dim).size() == 1)
      proved |= (AxisSet(round->axis) & known) - now_.reported;
  if (const auto *block = parts_.edges.gradient().known(index); block && block->proved)
    proved |= (AxisSet(block->axis) & known) - now_.reported;
  // How tensors lie behind one another is no question of cuts; that they are one block, is.
  proved |= (axes & before & known_pieces(value, type.mesh())) - type.sharded();
  const AxisSet counts = parts_.experts.keep_counts(value, type, proved);
  for (AxisId axis : (axes & before) - proved - counts)
    result_.lost.push_back({axis, Place::inst(id)});
  result_.proved[value.index] = proved;
  result_.scaled[value.index] =
      (is_float(value) ? scaled(id, value, index, returned, type) : axes) | proved;
}

// The axes on which the scale of a result follows.
AxisSet Proof::scaled(InstId id, ValueId value, uint32_t index, llvm::ArrayRef<ValueId> returned,
                      const Type &type) const {
  AxisSet axes = program_.meshes[type.mesh()].typed_axes();
  // What a loop makes is what its body returns of what it begins with.
  const std::optional<uint32_t> begins = carry_of(program_.insts[id], index);
  for (uint32_t i = 0; i < state_.operands.values.size(); ++i)
    if (ValueId operand = state_.operands.values[i];
        is_float(operand) && !now_.unread.contains(i) && i == begins.value_or(i))
      axes &= result_.scaled[operand.index];
  for (ValueId each : returned)
    axes &= result_.scaled[each.index];
  if (index == 0)
    axes |= parts_.one_rank.scaled();
  if (const Rings::Known *round = parts_.rings.facts().known(index); round && round->proved)
    axes |= round->axis;
  if (const auto *block = parts_.edges.gradient().known(index); block && block->proved)
    axes |= block->axis;
  const AxisSet windowed = index == 0 ? parts_.edges.in_place() : AxisSet();
  return axes &
         ((known_axes(type) | parts_.experts.owned(value) | windowed) - now_.reported - now_.open);
}

} // namespace spmd::checker
