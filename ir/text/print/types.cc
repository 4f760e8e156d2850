// Types in the text.
#include "ir/text/print/types.h"

#include "ir/text/print/contexts.h"

#include <fmt/core.h>

namespace spmd::ir {

TextTypes::TextTypes(const Program &program, Dialect dialect, std::optional<Dialect> comment)
    : program_(program), words_(program), dialect_(dialect), comment_(comment),
      mesh_(top_context(program).mesh) {}

std::string TextTypes::claim(TypeId id, ShapeId shape, ShapeId global_shape, MeshId stated,
                             MeshId around) const {
  Type type;
  type.set_mesh(around);
  if (id.valid())
    type = program_.types[id];
  std::string text = print_type_in(program_, type, shape, global_shape, dialect_);
  MeshId on = stated.valid() ? stated : type.mesh();
  if (stated.valid() || (id.valid() && on != around))
    text += fmt::format("{}on {}", text.empty() ? "" : " ", words_.name(program_.meshes[on].name));
  return text;
}

std::string TextTypes::claim(ClaimId id, MeshId around) const {
  if (!id.valid())
    return std::string(kNull);
  const Claim &row = program_.claims[id];
  std::string text = claim(row.type, row.shape, row.global_shape, {}, around);
  return text.empty() ? std::string(kNull) : text;
}

std::string TextTypes::value(ValueId id) const {
  const Value &row = program_.values[id];
  return claim(row.declared, row.shape, row.global_shape, row.mesh, mesh_);
}

std::string TextTypes::comment(ValueId first, uint32_t count) const {
  llvm::SmallVector<std::string, 2> parts;
  for (uint32_t i = 0; comment_ && i < count; ++i) {
    TypeId type = program_.values[ValueId{first.index + i}].declared;
    if (type.valid())
      parts.push_back(print_kinds_in(program_, program_.types[type], *comment_));
  }
  return parts.empty() ? "" : "  // " + joined(parts);
}

} // namespace spmd::ir
