// The same tensor seen on another mesh over the same ranks (rules/README.md, "Reinterpret
// mesh"): axes of the two meshes must group into equal layouts, with one kind per group, and axes
// that shard a dimension must be followed by axes of the other mesh in the same order of ranks.
#pragma once

#include "rules/violation.h"

#include "ir/program.h"

#include <optional>

namespace spmd::rules {

struct Remeshed {
  ir::Type type;                      // on the new mesh; unknown where it cannot be determined
  std::optional<Violation> violation; // mesh-change, mesh-group-mixed, spec-not-remappable
};

// Axes of the other mesh that share ranks with these. Empty if the meshes cut one another.
ir::AxisSet counterparts(const ir::Program &program, ir::MeshId from, ir::AxisSet axes,
                         ir::MeshId to);
// The typed axes that a reference names, on this mesh or another one over the same ranks; none if
// there is no such axis.
std::optional<ir::AxisSet> axes_named(const ir::Program &program, ir::MeshId mesh, ir::AxisRef ref);
// All those that a list names; an invalid list is empty.
ir::AxisSet axes_of(const ir::Program &program, ir::AxisRefsId list, ir::MeshId mesh);

Remeshed remesh(const ir::Program &program, const ir::Type &type, ir::MeshId to,
                OperandIndex operand);

} // namespace spmd::rules
