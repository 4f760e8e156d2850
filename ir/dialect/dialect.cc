// One printer per vocabulary; which words there are is said nowhere else.
#include "ir/dialect/dialect.h"

#include "ir/claims.h"
#include "ir/dialect/print_type.h"
#include "ir/mesh/axis_scale.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::ir {
namespace {

std::string axis_name(const Program &program, const Mesh &mesh, AxisId axis) {
  return program.strings[mesh[axis].name].str();
}

// The size of the axes that stand outside of this one on its dimension, and behind it in the mesh:
// DTensor lists placements in mesh order.
int64_t outer_behind(const Mesh &mesh, const Type &type, AxisId axis, unsigned dim) {
  int64_t factor = 1;
  for (AxisId other : shards_of(type, dim)) {
    if (other == axis)
      break;
    if (other.index > axis.index)
      factor *= mesh[other].size();
  }
  return factor;
}

std::string in_our_words(const Program &program, const Type &type, AxisId axis) {
  Type alone;
  alone.set_mesh(type.mesh());
  if (type.unknown.contains(axis))
    alone.unknown = axis;
  for (const KindInfo &row : kKinds)
    if (type.of(row.kind).contains(axis))
      alone.of(row.kind) |= axis;
  return fmt::format("[{}]", print_kinds(program, alone));
}

std::string placement(const Program &program, const Mesh &mesh, const Type &type, AxisId axis) {
  if (std::optional<unsigned> dim = type.dim(axis)) {
    int64_t factor = outer_behind(mesh, type, axis, *dim);
    return factor == 1 ? fmt::format("Shard({})", *dim)
                       : fmt::format("_StridedShard({}, split_factor={})", *dim, factor);
  }
  if (type.either().contains(axis))
    return "Replicate()";
  std::optional<Kind> kind = type.kind(axis);
  if (!kind)
    return in_our_words(program, type, axis);
  switch (*kind) {
  case Kind::Replicate:
    return "Replicate(grad=Partial)";
  case Kind::Reduced:
    return "Reduced()";
  case Kind::Invariant:
    return "Replicate()";
  case Kind::Partial: {
    Combiner combiner = type.combiner(axis);
    return fmt::format("Partial({})", combiner == Combiner::Prod ? "product" : word(combiner));
  }
  case Kind::Varying:
    break;
  }
  return in_our_words(program, type, axis);
}

// `Partial(avg)`: addends of n times the mean. Of the scale what the placements do not say is left
// over.
AxisSet averaged(const Program &program, const Type &type, Scale &left) {
  AxisSet axes;
  if (!type.scale.valid() || type.scale == program.one())
    return axes;
  left = named_scale(program, type.scale, type.mesh());
  for (AxisId axis : type.of(Kind::Partial) - type.zero() - type.combining()) {
    StringId name = program.meshes[type.mesh()][axis].name;
    ScaleFactor *factor =
        llvm::find_if(left.factors, [&](auto &each) { return each.base == name; });
    if (factor == left.factors.end() || factor->exponent != 1)
      continue;
    left.factors.erase(factor);
    axes |= axis;
  }
  return axes;
}

std::string placements(const Program &program, const Mesh &mesh, const Type &type, Scale &left) {
  AxisSet means = averaged(program, type, left);
  std::string text;
  for (AxisId axis : mesh.typed_axes())
    text += (text.empty() ? "" : ", ") +
            (means.contains(axis) ? "Partial(avg)" : placement(program, mesh, type, axis));
  return fmt::format("[{}]", text);
}

// `shown`: axes of a partition spec that stands elsewhere.
std::string jax_words(const Program &program, const Mesh &mesh, const Type &type, AxisSet shown) {
  std::string text;
  for (AxisId axis : mesh.typed_axes() - shown) {
    std::optional<Kind> kind = type.kind(axis);
    std::string said;
    if (kind == Kind::Replicate || kind == Kind::Reduced)
      said = "R:";
    else if (kind == Kind::Varying)
      said = "V:";
    else if (kind == Kind::Partial)
      said = type.combiner(axis) == Combiner::Sum ? "U:"
                                                  : fmt::format("U_{}:", word(type.combiner(axis)));
    else if (kind == Kind::Invariant || type.either().contains(axis))
      continue; // in no set
    said = said.empty() ? in_our_words(program, type, axis) : said + axis_name(program, mesh, axis);
    text += text.empty() ? "" : ", ";
    text += said;
  }
  return fmt::format("{{{}}}", text);
}

std::string ltensor_words(const Program &program, const Mesh &mesh, const Type &type) {
  std::string variant, reduced, rest;
  for (AxisId axis : mesh.typed_axes()) {
    auto add = [&](std::string &set) {
      set += (set.empty() ? "" : ",") + axis_name(program, mesh, axis);
    };
    std::optional<Kind> kind = type.kind(axis);
    if (kind == Kind::Varying || kind == Kind::Partial)
      add(variant);
    else if (kind == Kind::Replicate || kind == Kind::Reduced)
      add(reduced);
    else if (kind != Kind::Invariant && !type.either().contains(axis))
      rest += " " + in_our_words(program, type, axis);
  }
  return fmt::format("variant={{{}}} reduced={{{}}}{}", variant, reduced, rest);
}

// Of one axis: what the words of the dialect stand for besides.
std::string lost_on(const Program &program, const Type &type, AxisId axis, Dialect dialect) {
  std::optional<Kind> kind = type.kind(axis);
  std::string name = axis_name(program, program.meshes[type.mesh()], axis);
  if (type.either().contains(axis) && !type.zero().contains(axis))
    return fmt::format("R|I on {} is I", name);
  if (type.zero().contains(axis))
    return fmt::format("a zero on {} is I", name);
  if (kind == Kind::Reduced && dialect != Dialect::DTensor)
    return fmt::format("Reduced on {} is R", name);
  if (dialect != Dialect::LTensor)
    return "";
  if (kind == Kind::Partial)
    return fmt::format("P on {} is variant", name);
  if (std::optional<unsigned> dim = type.dim(axis))
    return fmt::format("S({}) on {} is variant", *dim, name);
  return "";
}

// DTensor's strided shards are of even blocks only.
bool strided_uneven(const Program &program, const Type &type, ShapeId local, ShapeId global) {
  if (!global.valid() || !program.shapes[global].ranked)
    return false;
  const Mesh &mesh = program.meshes[type.mesh()];
  const Shape &held = program.shapes[local], &whole = program.shapes[global];
  bool strided = false, uneven = false;
  for (unsigned dim = 0; dim < held.dims.size() && dim < whole.dims.size(); ++dim) {
    int64_t ranks = 1;
    for (AxisId axis : shards_of(type, dim)) {
      ranks *= mesh[axis].size();
      strided |= outer_behind(mesh, type, axis, dim) != 1;
    }
    bool known = held.dims[dim].is_number() && whole.dims[dim].is_number();
    uneven |= known && held.dims[dim].number() * ranks != whole.dims[dim].number();
  }
  return strided && uneven;
}

} // namespace

std::string describe_loss(const Program &program, const Type &type, Dialect dialect) {
  const Mesh &mesh = program.meshes[type.mesh()];
  std::string text;
  if (dialect == Dialect::Spmd)
    return text;
  for (AxisId axis : mesh.typed_axes()) {
    bool stated = type.claimed().contains(axis) || type.unknown.contains(axis);
    std::string lost = stated ? lost_on(program, type, axis, dialect) : "";
    if (!lost.empty())
      text += (text.empty() ? "" : ", ") + lost;
  }
  return text;
}

std::string print_type_in(const Program &program, const Type &type, ShapeId local, ShapeId global,
                          Dialect dialect) {
  const Mesh &mesh = program.meshes[type.mesh()];
  bool shaped = local.valid() && program.shapes[local].ranked;
  bool all = type.claimed().contains(mesh.typed_axes()) && !mesh.typed_axes().empty();
  bool theirs =
      dialect != Dialect::DTensor || !shaped || !strided_uneven(program, type, local, global);
  if (dialect == Dialect::Spmd || !shaped || !all || !theirs)
    return print_type(program, type, local, global);
  Type dims;
  dims.set_mesh(type.mesh());
  AxisSet shown;
  if (dialect == Dialect::Jax)
    for (AxisId axis : type.sharded()) {
      dims.set_kind(axis, Kind::Varying);
      dims.set_shard(axis, *type.dim(axis), type.order(axis));
      shown |= axis;
    }
  std::string text = print_type(program, dims, local, global) + " ";
  Scale left;
  if (dialect == Dialect::DTensor)
    text += placements(program, mesh, type, left);
  else
    text += dialect == Dialect::Jax ? jax_words(program, mesh, type, shown)
                                    : ltensor_words(program, mesh, type);
  if (dialect != Dialect::DTensor && type.scale.valid())
    left = named_scale(program, type.scale, type.mesh());
  return left.is_one() ? text : fmt::format("{} scale {}", text, print(left, program.strings));
}

std::optional<Dialect> find_dialect(llvm::StringRef text) {
  for (size_t i = 0; i < kDialectWords.size(); ++i)
    if (text == llvm::StringRef(kDialectWords[i].data(), kDialectWords[i].size()))
      return static_cast<Dialect>(i);
  return std::nullopt;
}

Dialect dialect_of(const Program &program) {
  if (!program.dialect.valid())
    return Dialect::Spmd;
  return find_dialect(program.strings[program.dialect]).value_or(Dialect::Spmd);
}

std::string print_kinds_in(const Program &program, const Type &type, Dialect dialect) {
  const Mesh &mesh = program.meshes[type.mesh()];
  switch (dialect) {
  case Dialect::Spmd:
    break;
  case Dialect::Jax:
    return jax_words(program, mesh, type, {});
  case Dialect::DTensor: {
    Scale left;
    std::string text = placements(program, mesh, type, left);
    return left.is_one() ? text : fmt::format("{} [scale {}]", text, print(left, program.strings));
  }
  case Dialect::LTensor:
    return ltensor_words(program, mesh, type);
  }
  return print_kinds(program, type);
}

void state_default_kinds(Program &program) {
  Dialect dialect = dialect_of(program);
  if (dialect != Dialect::Jax && dialect != Dialect::LTensor)
    return;
  auto fill = [&](Value &value, MeshId mesh) {
    Type type;
    type.set_mesh(mesh);
    if (value.declared.valid())
      type = program.types[value.declared];
    type.set_kind(program.meshes[mesh].typed_axes() - type.claimed(), Kind::Invariant);
    value.declared = program.types.add(type);
  };
  for (const Param &param : program.params) {
    Value &value = program.values[param.value];
    MeshId mesh = mesh_of(program, param.value, MeshId{0});
    if (mesh.index < program.meshes.size() && param.role != Role::Token)
      fill(value, mesh);
  }
  // Of a function that states no type the types are those of each call.
  for (const Function &function : program.functions)
    for (const FunctionParam &param : function.params)
      if (Value &value = program.values[param.value]; value.declared.valid())
        fill(value, program.types[value.declared].mesh());
}

} // namespace spmd::ir
