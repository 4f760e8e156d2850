// Types and shapes as text: what read/types.cc reads back, and the listing of kinds that
// sentences use.
#include "ir/dialect/print_type.h"

#include "ir/claims.h"
#include "ir/mesh/axis_scale.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/core.h>

namespace spmd::ir {

static std::string_view axis_name(const Program &program, const Mesh &mesh, AxisId axis) {
  return program.strings[mesh[axis].name];
}

static std::string listed(const Program &program, const Mesh &mesh, llvm::ArrayRef<AxisId> axes) {
  std::string out;
  for (AxisId axis : axes)
    out += fmt::format("{}{}", out.empty() ? "" : ", ", axis_name(program, mesh, axis));
  return axes.size() == 1 ? out : "(" + out + ")";
}

static void append(std::string &out, std::string_view text) {
  out += out.empty() ? "" : " ";
  out += text;
}

static void append_scale(std::string &out, const Program &program, const Type &type) {
  if (type.scale.valid() && type.scale != program.one())
    append(out, "scale " + print_scale(program, type.scale, type.mesh()));
}

// One claim; a shard that is not in brackets is S(i). `join`: all axes of its dimension in order;
// else one by one, as long as the order in which they are written says the same.
static std::string print_claim(const Program &program, const Type &type, AxisId axis, bool join) {
  const Mesh &mesh = program.meshes[type.mesh()];
  std::optional<WrittenKind> word = kind_word(type, axis);
  std::optional<unsigned> dim = type.dim(axis);
  if (!word)
    return "";
  if (!dim)
    return fmt::format("{}@{}", print(*word), axis_name(program, mesh, axis));
  llvm::SmallVector<AxisId, 2> axes = shards_of(type, *dim);
  auto mesh_order = [](AxisId a, AxisId b) { return a.index < b.index; };
  if (!join && llvm::is_sorted(axes, mesh_order))
    axes = {axis};
  // Joined shards stand where the first of their axes does.
  for (AxisId other : axes)
    if (other.index < axis.index)
      return "";
  return fmt::format("S({})@{}", *dim, listed(program, mesh, axes));
}

std::string print_kinds(const Program &program, const Type &type) {
  std::string out;
  for (AxisId axis : type.claimed())
    if (std::string claim = print_claim(program, type, axis, false); !claim.empty())
      append(out, claim);
  append_scale(out, program, type);
  return out;
}

// An expression stands in brackets, so that it reads as one extent.
static std::string print_extent(const Program &program, Extent extent) {
  std::string text = print(extent, program.exprs, program.strings);
  bool simple = extent.is_number() || program.exprs[extent.expr()].form == Expr::Form::Symbol;
  return simple ? text : "(" + text + ")";
}

static std::string print_dims(const Program &program, const Shape &shape, const Type *type) {
  if (!shape.ranked)
    return "...";
  std::string out;
  for (unsigned dim = 0; dim < shape.dims.size(); ++dim) {
    out += dim ? ", " : "";
    out += print_extent(program, shape.dims[dim]);
    if (!type)
      continue;
    if (llvm::SmallVector<AxisId, 2> axes = shards_of(*type, dim); !axes.empty())
      out += "@" + listed(program, program.meshes[type->mesh()], axes);
  }
  return out;
}

std::string print_shape(const Program &program, ShapeId id) {
  if (!id.valid())
    return "";
  const Shape &shape = program.shapes[id];
  return fmt::format("{}[{}]", info(shape.dtype).word, print_dims(program, shape, nullptr));
}

std::string print_type(const Program &program, const Type &type, ShapeId local, ShapeId global) {
  std::string out;
  unsigned shown = 0;
  if (local.valid() || global.valid()) {
    Shape unknown;
    unknown.ranked = false;
    const Shape &shape = local.valid() ? program.shapes[local] : unknown;
    out = fmt::format("{}[{}]", info(shape.dtype).word, print_dims(program, shape, &type));
    shown = shape.ranked ? static_cast<unsigned>(shape.dims.size()) : 0;
    if (global.valid())
      out += fmt::format(" of [{}]", print_dims(program, program.shapes[global], nullptr));
  }
  for (AxisId axis : type.claimed()) {
    if (type.dim(axis) && *type.dim(axis) < shown)
      continue;
    if (std::string claim = print_claim(program, type, axis, true); !claim.empty())
      append(out, claim);
  }
  append_scale(out, program, type);
  return out;
}

std::string print_axes(const Program &program, MeshId mesh, AxisSet axes) {
  std::string out;
  for (AxisId axis : axes)
    out += fmt::format("{}{}", out.empty() ? "" : ", ",
                       axis_name(program, program.meshes[mesh], axis));
  return out;
}

} // namespace spmd::ir
