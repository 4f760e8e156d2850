// Types, claims, axes and expressions of the text form.
#pragma once

#include "ir/claims.h"
#include "ir/text/read/cursor.h"

#include "llvm/ADT/DenseSet.h"

namespace spmd::ir {

// A type as written, before it is known what it is the type of.
struct WrittenType {
  TypeId type;
  ShapeId shape, global_shape;
  MeshId on; // none if not stated
};

class TextTypeReader : TextCursor {
public:
  explicit TextTypeReader(TextInput &input) : TextCursor(input) {}

  // The first mesh of that name; none if there is none.
  MeshId mesh_named(llvm::StringRef name);
  bool at_shape();
  bool at_kind();
  bool at_type() {
    return at_shape() || at_kind() || peek().is_name("scale") || peek().is_name("on");
  }
  // `rank`: the number of dimensions where the type has no shape and another place states it.
  std::optional<WrittenType> type(MeshId mesh, std::optional<unsigned> rank = {});
  // A type, or `null` for one that says nothing.
  std::optional<ClaimId> claim(MeshId mesh, std::optional<unsigned> rank = {});
  std::optional<unsigned> rank_of(ShapeId shape) const;
  std::optional<WrittenKind> kind();
  std::optional<AxisRef> axis_ref();
  std::optional<AxisRefs> axes();
  std::optional<MeshId> mesh_name();
  // Whether the axes are there, seen from a mesh; what is not is reported at the token.
  bool check_axes(const Token &at, MeshId mesh, const AxisRefs &refs);
  std::optional<AxisSet> axis_set(MeshId mesh);
  std::optional<Extent> extent();
  std::optional<ScaleId> scale();
  bool is_symbol(llvm::StringRef name);

private:
  // Claims wait until the mesh is known, which is named last.
  struct WrittenClaims {
    struct One {
      Token at;
      std::optional<WrittenKind> kind; // none: the axes shard dimension `dim`
      unsigned dim;
      AxisRefs axes;
    };
    Token first;
    llvm::SmallVector<One, 4> list;
    std::optional<ScaleId> scale;
    Token words_at = {};     // of what follows
    llvm::StringRef words{}; // the kinds in those of the program's dialect, as they stand
  };

  bool read_shape(WrittenType &type, WrittenClaims &claims);
  bool read_dtype(Shape &shape);
  bool read_dims(Shape &shape, WrittenClaims &claims);
  bool read_global_shape(WrittenType &type, const Shape &local);
  bool read_claim(WrittenClaims &claims);
  bool read_scale_and_mesh(WrittenType &type, WrittenClaims &claims);
  bool read_words(WrittenClaims &claims);
  bool cuts_evenly(const WrittenType &written) const;
  std::optional<std::string> add_words(ClaimBuilder &builder, const WrittenClaims &claims,
                                       MeshId mesh);
  TypeId finish_claims(const WrittenClaims &claims, MeshId mesh, std::optional<unsigned> rank);
  bool read_kind_argument(WrittenKind &word);
  std::optional<AxisRefs> axes_after_at();
  // The tokens of an expression, joined; with `symbols`, each name must be a symbol.
  bool expression(std::string &text, bool symbols);
  bool expression_operand(std::string &text, bool symbols);
  bool at_operator();

  // Names of what the program has so far, by StringId: entered when one is looked for.
  llvm::DenseSet<uint32_t> symbols_;
  llvm::DenseMap<uint32_t, MeshId> meshes_;
  size_t symbols_entered_ = 0, meshes_entered_ = 0;
};

} // namespace spmd::ir
