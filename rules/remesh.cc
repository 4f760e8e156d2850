// Carries kinds from the axes of one mesh to those of another by way of their common refinement.
#include "rules/remesh.h"

#include "ir/text.h"

namespace spmd::rules {

using ir::Atom;
using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::Mesh;
using ir::Type;

namespace {

bool contains(const ir::Layout &layout, const Atom &piece) {
  for (const Atom &atom : layout)
    if (piece.stride >= atom.stride && piece.stride * piece.size <= atom.stride * atom.size)
      return true;
  return false;
}

// Axes of the two meshes that share a piece, directly or by way of others.
struct Group {
  AxisSet from, to;
};

llvm::SmallVector<Group, 4> groups_of(const Mesh &from, const Mesh &to, const ir::Layout &pieces) {
  llvm::SmallVector<Group, 4> groups;
  for (const Atom &piece : pieces) {
    Group made;
    for (AxisId axis : from.typed_axes())
      if (contains(from[axis].layout, piece))
        made.from |= axis;
    for (AxisId axis : to.typed_axes())
      if (contains(to[axis].layout, piece))
        made.to |= axis;
    llvm::SmallVector<Group, 4> rest;
    for (const Group &group : groups) {
      if ((group.from & made.from) || (group.to & made.to)) {
        made.from |= group.from;
        made.to |= group.to;
      } else {
        rest.push_back(group);
      }
    }
    rest.push_back(made);
    groups = std::move(rest);
  }
  return groups;
}

// True if all axes of the set are in the same planes of the type.
bool one_kind(const Type &type, AxisSet axes) {
  for (AxisSet plane : type.axes)
    if ((plane & axes) && !plane.contains(axes))
      return false;
  return true;
}

Remeshed refused(const Mesh &to, Type type, Violation violation) {
  type.unknown = to.typed_axes();
  return {type, std::move(violation)};
}

} // namespace

Remeshed remesh(const ir::Program &program, const Type &type, ir::MeshId to_id,
                OperandIndex operand) {
  const Mesh &from = program.meshes[type.mesh()], &to = program.meshes[to_id];
  Type made;
  made.scale = type.scale;
  made.set_mesh(to_id);
  made.set_gradient_free(type.gradient_free());
  std::string from_name = program.strings[from.name].str(),
              to_name = program.strings[to.name].str();
  std::optional<ir::Layout> pieces = ir::common_refinement(from, to);
  if (!pieces || from.offset != to.offset)
    return refused(to, made, MeshChange{operand, from_name, to_name});
  for (const Group &group : groups_of(from, to, *pieces)) {
    if (!group.from || !group.to)
      return refused(to, made, MeshChange{operand, from_name, to_name});
    if (type.unknown & group.from) {
      made.unknown |= group.to;
      continue;
    }
    if (!one_kind(type, group.from))
      return refused(to, made,
                     MeshGroupMixed{operand, ir::print_axes(program, type.mesh(), group.from),
                                    ir::print_axes(program, to_id, group.to)});
    for (unsigned k = 0; k < ir::kKindCount; ++k)
      if (type.axes[k] & group.from)
        made.axes[k] |= group.to;
  }
  return {made, std::nullopt};
}

} // namespace spmd::rules
