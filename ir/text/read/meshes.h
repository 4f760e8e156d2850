// Declarations of meshes and groups.
#pragma once

#include "ir/text/read/operands.h"

#include "llvm/ADT/DenseSet.h"

namespace spmd::ir {

class TextMeshReader : TextCursor {
public:
  TextMeshReader(TextInput &input, TextTypeReader &types, TextOperandReader &operands)
      : TextCursor(input), types_(types), operands_(operands) {}

  bool read_mesh();
  bool read_group();

private:
  void add_mesh(Mesh mesh, const Token &token);
  bool read_within(Mesh &mesh);
  bool read_coordinate(Mesh &mesh, const Token &token, Key key);
  static int64_t rank_at(const Layout &layout, int64_t coordinate);
  bool read_axis(Mesh &mesh);
  bool read_axis_layout(Mesh &mesh, Axis &axis);
  void take_parent_axis(const Mesh &mesh, Axis &axis, const Token &token);
  bool read_atom(const Mesh &mesh, Layout &layout, bool needs_stride);
  bool at_axis_names();
  std::optional<int64_t> read_ranks(const Mesh &mesh, std::string_view what);
  void resolve_pieces(Mesh &mesh, const Token &token);
  bool read_group_axes(Group &group);
  bool read_group_ranks(Group &group);

  TextTypeReader &types_;
  TextOperandReader &operands_;
  llvm::DenseSet<uint32_t> groups_;                              // their names
  llvm::DenseMap<uint32_t, llvm::SmallVector<Token, 4>> pieces_; // of the mesh at hand, by axis
};

} // namespace spmd::ir
