// Values: where they are defined, and where they are used. Relies on Builder for names.
#pragma once

#include "ir/json/read/types.h"

namespace spmd::ir {

class JsonValueReader : JsonPart {
public:
  JsonValueReader(JsonInput &input, JsonTypeReader &types) : JsonPart(input), types_(types) {}

  std::optional<ValueName> value_name();
  ValueId value_ref();
  // Defines it under its `id`; none if that fails.
  ValueId define(const JsonMembers &members, MeshId mesh, bool grads_known = true);
  MeshId mesh_of(ValueId value) const { return value_meshes_[value.index]; }

private:
  Value value(const JsonMembers &members, MeshId mesh, bool grads_known);

  JsonTypeReader &types_;
  std::vector<MeshId> value_meshes_; // by ValueId
};

} // namespace spmd::ir
