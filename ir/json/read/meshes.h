// Meshes and groups.
#pragma once

#include "ir/json/read/types.h"

namespace spmd::ir {

class JsonMeshReader : JsonPart {
public:
  JsonMeshReader(JsonInput &input, JsonTypeReader &types) : JsonPart(input), types_(types) {}

  void meshes();
  void groups();

private:
  void mesh();
  void within(Mesh &mesh);
  void axes(Mesh &mesh);
  // `of`: the pieces of a flattened axis, which wait for the other axes.
  Axis axis(const Mesh &mesh, Token &of);
  int64_t ranks(const Mesh &mesh);
  void ranks(Group &group);
  Axis axis_of_parent(const Mesh &mesh);
  void axis_pieces(const Mesh &mesh, Axis &axis);
  void layout(const Mesh &mesh, Layout &layout);
  void group(llvm::StringRef key);

  JsonTypeReader &types_;
};

} // namespace spmd::ir
