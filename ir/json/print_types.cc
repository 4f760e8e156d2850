// Values and types as JSON. A type is printed with a spec where the number of dimensions is stated
// beside it, and with S(i) elsewhere, unless two axes shard one dimension.
#include "ir/json/print.h"

namespace spmd::ir {

// All members but `id`; `mesh` is that of the context.
void JsonPrinter::value(ValueId id, MeshId mesh) {
  const Value &value = p_.values[id];
  MeshId own = value.mesh;
  if (!own.valid() && value.declared.valid() && p_.types[value.declared].mesh() != mesh)
    own = p_.types[value.declared].mesh(); // text declares on the mesh last named
  value_meshes_[id.index] = own.valid() ? own : mesh;
  shapes(value.shape, value.global_shape);
  if (own.valid())
    text("mesh", p_.meshes[own].name);
  type(value.declared, rank_of(value.shape, value.global_shape), true);
  if (value.requires_grad != Tristate::Unstated)
    flag("requires_grad", value.requires_grad == Tristate::True);
  value_name("grad_of", value.grad_of);
  value_name("alias_of", value.alias_of);
}

void JsonPrinter::shapes(ShapeId shape, ShapeId global) {
  DType dtype = shape.valid()    ? p_.shapes[shape].dtype
                : global.valid() ? p_.shapes[global].dtype
                                 : DType::Unknown;
  if (dtype != DType::Unknown) {
    key("dtype");
    text(info(dtype).word);
  }
  const std::pair<std::string_view, ShapeId> both[] = {{"shape", shape}, {"gshape", global}};
  for (auto [name, id] : both) {
    if (!id.valid() || !p_.shapes[id].ranked)
      continue;
    key(name);
    out_ += '[';
    for (Extent extent : p_.shapes[id].dims) {
      separate();
      if (extent.is_number())
        out_ += std::to_string(extent.number());
      else
        text(ir::print(extent, p_.exprs, p_.strings));
    }
    out_ += ']';
  }
}

// A local shape may be a dtype alone.
std::optional<unsigned> JsonPrinter::rank_of(ShapeId local, ShapeId global) const {
  std::optional<unsigned> rank = rank_of(local);
  return rank ? rank : rank_of(global);
}

std::optional<unsigned> JsonPrinter::rank_of(ShapeId id) const {
  if (!id.valid() || !p_.shapes[id].ranked)
    return std::nullopt;
  return static_cast<unsigned>(p_.shapes[id].dims.size());
}

void JsonPrinter::claim(ClaimId id, MeshId mesh, std::optional<unsigned> rank) {
  const Claim &claim = p_.claims[id];
  if (claim == Claim())
    out_ += "null";
  else
    out_ += '{', claim_members(claim, mesh, rank), out_ += '}';
}

// `rank`: the number of dimensions where the claim has no shape of its own.
void JsonPrinter::claim_members(const Claim &claim, MeshId mesh, std::optional<unsigned> rank) {
  shapes(claim.shape, claim.global_shape);
  if (claim.type.valid() && p_.types[claim.type].mesh() != mesh)
    text("mesh", p_.meshes[p_.types[claim.type].mesh()].name);
  std::optional<unsigned> own = rank_of(claim.shape, claim.global_shape);
  type(claim.type, own ? own : rank, own.has_value());
}

void JsonPrinter::type(TypeId id, std::optional<unsigned> rank, bool own_shape) {
  if (!id.valid())
    return;
  const Type &type = p_.types[id];
  const Mesh &mesh = p_.meshes[type.mesh()];
  bool spec = own_shape && rank && type.sharded();
  for (unsigned dim = 0; dim < kMaxDims; ++dim)
    spec |= shards_of(type, dim).size() > 1;
  bool open = false;
  for (AxisId axis : mesh.typed_axes()) {
    std::optional<WrittenKind> word = kind_word(type, axis);
    if (!word)
      continue;
    if (!open)
      key("type"), out_ += '{';
    open = true;
    if (std::optional<unsigned> dim = type.dim(axis); dim && !spec)
      *word = {.form = WrittenKind::Form::Shard,
               .kind = Kind::Varying,
               .dim = static_cast<int8_t>(*dim)};
    key(p_.strings[mesh[axis].name]);
    text(ir::print(*word));
  }
  if (open)
    out_ += '}';
  if (spec)
    this->spec(type, rank);
  if (type.scale.valid() && type.scale != p_.one()) {
    key("scale");
    text(ir::print(p_.scales[type.scale], p_.strings));
  }
}

void JsonPrinter::spec(const Type &type, std::optional<unsigned> rank) {
  unsigned length = rank.value_or(0);
  for (AxisId axis : type.sharded())
    length = std::max(length, *type.dim(axis) + 1);
  key("spec");
  out_ += '[';
  for (unsigned dim = 0; dim < length; ++dim) {
    separate();
    llvm::SmallVector<AxisId, 2> axes = shards_of(type, dim);
    const Mesh &mesh = p_.meshes[type.mesh()];
    if (axes.empty())
      out_ += "null";
    else if (axes.size() == 1)
      text(p_.strings[mesh[axes[0]].name]);
    else
      axis_names(mesh, axes);
  }
  out_ += ']';
}

} // namespace spmd::ir
