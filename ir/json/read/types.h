// Types, shapes, claims and axes. Those that were read before are found again by their text.
// Relies on ClaimBuilder for claims.
#pragma once

#include "ir/json/read/part.h"

#include "llvm/ADT/DenseSet.h"

namespace spmd::ir {

// The members of a value; a claim has the first of them.
enum ValueKey : unsigned {
  DTypeKey,
  ShapeKey,
  GlobalShapeKey,
  MeshKey,
  TypeKey,
  SpecKey,
  ScaleKey,
  ClaimKeyCount,
  IdKey = ClaimKeyCount,
  RequiresGradKey,
  GradOfKey,
  AliasOfKey,
  ValueKeyCount,
};
inline constexpr std::array<std::string_view, ClaimKeyCount> kClaimKeys = {
    "dtype", "shape", "gshape", "mesh", "type", "spec", "scale"};
inline constexpr std::array<std::string_view, ValueKeyCount> kValueKeys = {
    "dtype", "shape", "gshape",        "mesh",    "type",    "spec",
    "scale", "id",    "requires_grad", "grad_of", "alias_of"};

class JsonTypeReader : JsonPart {
public:
  explicit JsonTypeReader(JsonInput &input) : JsonPart(input) {}

  void symbols();
  llvm::SmallVector<AxisId, 2> axes_of(MeshId mesh);
  std::optional<int64_t> number_or_extent(std::string_view name);
  std::optional<Extent> extent(std::string_view name);
  ScaleId scale();
  MeshId mesh_named(llvm::StringRef name); // the first one; none if there is none
  MeshId mesh_ref();
  MeshId stated_mesh(const JsonMembers &members, MeshId mesh);
  Claim claim_of(const JsonMembers &members, MeshId mesh, std::optional<unsigned> rank);
  // A claim that is an object of its own, or null, which says nothing.
  ClaimId claim(MeshId mesh, std::optional<unsigned> rank);
  std::optional<unsigned> rank_of(ShapeId shape) const;
  std::optional<unsigned> rank_of(ValueId value) const {
    return rank_of(program_.values[value].shape);
  }
  std::optional<WrittenKind> kind();
  void axis_refs(llvm::SmallVectorImpl<AxisRef> &refs);
  AxisRefsId declared_axes(MeshId mesh);

private:
  void symbol(llvm::StringRef name);
  bool check_symbols(Extent extent, Token token, std::string_view name);
  ShapeId shape(const JsonMembers &members, unsigned dims);
  ShapeId read_shape(const JsonMembers &members, unsigned dims);
  TypeId type(const JsonMembers &members, MeshId mesh, std::optional<unsigned> rank);
  TypeId read_type(const JsonMembers &members, MeshId mesh, std::optional<unsigned> rank);
  bool kinds(ClaimBuilder &claims);
  bool spec(ClaimBuilder &claims);
  bool scales_are_full(Token token);
  AxisRef axis_ref(llvm::StringRef text);

  llvm::DenseSet<uint32_t> symbols_;        // names
  llvm::DenseMap<uint32_t, MeshId> meshes_; // by name, as far as they are entered
  size_t meshes_entered_ = 0;
  RawCache shape_cache_, type_cache_, scale_cache_;
};

} // namespace spmd::ir
