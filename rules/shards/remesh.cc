// Carries kinds and partition specs from the axes of one mesh to those of another by way of their
// common refinement.
#include "rules/shards/remesh.h"

#include "rules/violations/meshes.h"
#include "rules/violations/shards.h"

#include "ir/claims.h"
#include "ir/dialect/print_type.h"
#include "ir/support/arrays.h"

#include "llvm/ADT/STLExtras.h"

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

// The pieces of an axis, outermost first.
llvm::SmallVector<Atom, 4> cut(const ir::Axis &axis, const ir::Layout &pieces) {
  llvm::SmallVector<Atom, 4> made;
  for (const Atom &atom : axis.layout) {
    size_t first = made.size();
    for (const Atom &piece : pieces)
      if (contains({atom}, piece))
        made.push_back(piece);
    llvm::sort(made.begin() + static_cast<ptrdiff_t>(first), made.end(),
               [](const Atom &a, const Atom &b) { return a.stride > b.stride; });
  }
  return made;
}

// Blocks stay where they are: the axes that number them on the other mesh, in the same order. None
// if there are no such axes.
std::optional<llvm::SmallVector<AxisId, 2>>
follow(const Mesh &from, const Mesh &to, llvm::ArrayRef<AxisId> axes, const ir::Layout &pieces) {
  llvm::SmallVector<Atom, 8> order;
  for (AxisId axis : axes)
    order.append(cut(from[axis], pieces));
  llvm::SmallVector<AxisId, 2> made;
  for (llvm::ArrayRef<Atom> rest = order; !rest.empty();) {
    size_t taken = 0;
    for (AxisId axis : to.typed_axes()) {
      llvm::SmallVector<Atom, 4> own = cut(to[axis], pieces);
      if (own.size() > rest.size() || rest.take_front(own.size()) != ir::as_array(own))
        continue;
      taken = own.size();
      made.push_back(axis);
    }
    if (taken == 0)
      return std::nullopt;
    rest = rest.drop_front(taken);
  }
  return made;
}

// True if all axes of the set are in the same planes of the type, and await one combiner.
bool one_kind(const Type &type, AxisSet axes) {
  for (AxisId axis : axes &type.of(Kind::Partial) & ~type.zero())
    if (type.combiner(axis) != type.combiner(axes.first()))
      return false;
  for (AxisSet plane : type.axes)
    if ((plane & axes) && !plane.contains(axes))
      return false;
  return true;
}

std::string order_of(const ir::Program &program, const Mesh &mesh, llvm::ArrayRef<AxisId> axes) {
  std::string text;
  for (AxisId axis : axes)
    text += (text.empty() ? "" : ", ") + program.strings[mesh[axis].name].str();
  return text;
}

Remeshed refused(const Mesh &to, Type type, Violation violation) {
  type.set_unknown(to.typed_axes());
  return {type, std::move(violation)};
}

} // namespace

static AxisSet met_by(llvm::ArrayRef<Group> groups, AxisSet axes) {
  AxisSet met;
  for (const Group &group : groups)
    if (group.from & axes)
      met |= group.to;
  return met;
}

AxisSet counterparts(const ir::Program &program, ir::MeshId from, AxisSet axes, ir::MeshId to) {
  if (from == to)
    return axes;
  const Mesh &a = program.meshes[from], &b = program.meshes[to];
  std::optional<ir::Layout> pieces = ir::common_refinement(a, b);
  return pieces ? met_by(groups_of(a, b, *pieces), axes) : AxisSet();
}

std::optional<AxisSet> axes_named(const ir::Program &program, ir::MeshId mesh, ir::AxisRef ref) {
  std::string error;
  std::optional<ir::FoundAxis> found = find_axis(program, mesh, ref, error);
  if (!found)
    return std::nullopt;
  const Mesh &on = program.meshes[found->mesh];
  return counterparts(program, found->mesh, on.pieces_of(found->axis) & on.typed_axes(), mesh);
}

AxisSet axes_of(const ir::Program &program, ir::AxisRefsId list, ir::MeshId mesh) {
  AxisSet axes;
  if (list.valid())
    for (const ir::AxisRef &ref : program.axis_refs[list].refs)
      axes |= axes_named(program, mesh, ref).value_or(AxisSet());
  return axes;
}

// Shards follow; false, with the axes of a dimension that cannot, if some do not.
static bool move_shards(const Mesh &from, const Mesh &to, const ir::Layout &pieces,
                        llvm::ArrayRef<Group> groups, const Type &type, Type &made,
                        std::pair<unsigned, llvm::SmallVector<AxisId, 2>> &stuck) {
  for (unsigned dim = 0; dim < ir::kMaxDims; ++dim) {
    llvm::SmallVector<AxisId, 2> axes = ir::shards_of(type, dim);
    AxisSet met;
    for (AxisId axis : axes)
      met |= met_by(groups, axis);
    if (met & made.unknown) {
      made.set_unknown(met);
      continue;
    }
    std::optional<llvm::SmallVector<AxisId, 2>> moved = follow(from, to, axes, pieces);
    if (!moved) {
      stuck = {dim, axes};
      return false;
    }
    for (unsigned order = 0; order < moved->size(); ++order)
      made.set_shard((*moved)[order], dim, order);
  }
  made.renumber_shard_orders();
  return true;
}

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
  llvm::SmallVector<Group, 4> groups = groups_of(from, to, *pieces);
  for (const Group &group : groups) {
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
    for (AxisId axis : group.to &made.of(Kind::Partial))
      made.set_combiner(axis, type.combiner(group.from.first()));
  }
  std::pair<unsigned, llvm::SmallVector<AxisId, 2>> stuck;
  if (move_shards(from, to, *pieces, groups, type, made, stuck))
    return {made, std::nullopt};
  return refused(to, made,
                 SpecNotRemappable{operand, order_of(program, from, stuck.second), to_name,
                                   static_cast<int64_t>(stuck.first)});
}

} // namespace spmd::rules
