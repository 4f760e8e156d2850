// The same tensor seen on another mesh over the same ranks (rules/README.md, "Reinterpret
// mesh"). Kinds only: axes of the two meshes must group into equal layouts, with one kind per
// group.
#pragma once

#include "rules/violation.h"

#include "ir/program.h"

#include <optional>

namespace spmd::rules {

struct Remeshed {
  ir::Type type;                      // on the new mesh; unknown where it cannot be told
  std::optional<Violation> violation; // mesh-change, mesh-group-mixed
};

Remeshed remesh(const ir::Program &program, const ir::Type &type, ir::MeshId to,
                OperandIndex operand);

} // namespace spmd::rules
