// Meshes: named grids of ranks. An axis is its rank layout, (size, stride) atoms, outermost first;
// names are for people. Ranks are counted from the mesh's offset.
#pragma once

#include "ir/ids.h"
#include "ir/mesh/axis.h"
#include "ir/support/store.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>
#include <string>

namespace spmd::ir {

struct Atom {
  int64_t size = 1;
  int64_t stride = 1; // in ranks
  friend bool operator==(const Atom &, const Atom &) = default;
};
using Layout = llvm::SmallVector<Atom, 2>;

enum class Policy : uint8_t { Unstated, Local, Global };

struct Axis {
  StringId name;
  Layout layout;                       // outermost first
  llvm::SmallVector<AxisId, 2> pieces; // of a flattened axis: the axes of the mesh it is made of
  bool flattened = false;              // by `of` or by `layout`: types are kept on the pieces
  bool explicit_layout = false;        // written as [[size, stride], ...]
  bool explicit_stride = false;        // the stride was written, not derived
  Policy policy = Policy::Unstated;
  StringId role; // documentation only; none if absent

  int64_t size() const;
};

struct SubMesh {
  MeshId parent;
  llvm::SmallVector<std::pair<AxisId, int64_t>, 2> at; // coordinates that are fixed
};

struct Mesh {
  StringId name;
  llvm::SmallVector<Axis, 4> axes; // outermost first, flattened ones included
  int64_t offset = 0;
  bool explicit_offset = false;
  std::optional<SubMesh> within;

  const Axis &operator[](AxisId axis) const { return axes[axis.index]; }
  // Axes that types speak of: neither flattened nor of size 1.
  AxisSet typed_axes() const { return typed; }
  std::optional<AxisId> find(StringId name) const;
  // The axis, or the pieces of a flattened one.
  AxisSet pieces_of(AxisId axis) const;
  int64_t rank_count() const;

  AxisSet typed; // derived by finish()
};

// Drops atoms of size 1 and joins neighbours that continue one another: 4:2, 2:1 becomes 8:1.
Layout canonical(llvm::ArrayRef<Atom> layout);
// Mixed radix: sorted by stride, each stride exceeds the largest offset reachable by the smaller
// ones.
bool orthogonal(llvm::ArrayRef<Atom> atoms);
// The ranks of one group, in order, from `offset`; at most `limit` of them.
llvm::SmallVector<int64_t, 16> ranks_of(llvm::ArrayRef<Atom> layout, int64_t offset,
                                        size_t limit = ~size_t(0));
// The orthogonal layout whose ranks_of() is exactly this list; none for an irregular list.
std::optional<Layout> layout_of(llvm::ArrayRef<int64_t> ranks);
// Concatenated layout of axes, outermost first, canonical.
Layout layout_of_axes(const Mesh &mesh, llvm::ArrayRef<AxisId> axes);
// Unflattened axes, outermost first, whose layout is this one; axes of size 1 are left out. None if
// an axis would have to be cut, or ranks are met that are on no axis.
std::optional<llvm::SmallVector<AxisId, 4>> axes_of_layout(const Mesh &mesh,
                                                           llvm::ArrayRef<Atom> layout);

// A common refinement of two meshes over the same ranks: atoms such that each axis of either mesh
// is a product of atoms. None if the layouts cut one another (rules/README.md).
std::optional<Layout> common_refinement(const Mesh &a, const Mesh &b);

// Checks orthogonality and limits, and fills what the reader left out: strides of 0 (row major),
// the layout of an `of` axis, the pieces of a flattened axis that has only a layout (it is not
// flattened if it has none), `typed`. Empty, or what is wrong; `number`: how sizes are printed.
std::string finish(
    Mesh &mesh, const StringTable &names,
    llvm::function_ref<std::string(int64_t)> number = [](int64_t n) { return std::to_string(n); });

// A run-time group key, as an exporter found it.
struct Group {
  enum class Form : uint8_t { Axes, Layout, Ranks };
  StringId key;
  Form form = Form::Axes;
  MeshId mesh;                         // Axes
  llvm::SmallVector<AxisId, 2> axes;   // Axes, outermost first
  Layout layout;                       // Layout
  int64_t offset = 0;                  // Layout
  llvm::SmallVector<int64_t, 8> ranks; // Ranks, communicator order
};

} // namespace spmd::ir
