// The types of values and claims as the text states them, on the mesh of the block at hand.
#pragma once

#include "ir/dialect/dialect.h"
#include "ir/text/print/words.h"

#include <optional>

namespace spmd::ir {

class TextTypes {
public:
  // In the words of `dialect`. `comment`: in these too, in a comment behind each statement.
  TextTypes(const Program &program, Dialect dialect, std::optional<Dialect> comment);

  MeshId mesh() const { return mesh_; }
  // The mesh of a block; the one before, to be set again behind it.
  MeshId enter(MeshId mesh) { return std::exchange(mesh_, mesh); }

  // The type of a value with all that it states; empty if it states nothing.
  std::string value(ValueId id) const;
  std::string claim(ClaimId id, MeshId around) const; // `null` if it says nothing
  // `stated`: a mesh that is named in any case.
  std::string claim(TypeId type, ShapeId shape, ShapeId global_shape, MeshId stated,
                    MeshId around) const;
  // The comment on these values; empty where nothing is known or asked for.
  std::string comment(ValueId first, uint32_t count) const;

private:
  const Program &program_;
  TextWords words_;
  Dialect dialect_;
  std::optional<Dialect> comment_;
  MeshId mesh_;
};

} // namespace spmd::ir
