// The algebra of axes: layouts and rank lists, axes that make up a layout, meshes over the same
// ranks. Relies on orthogonality: strides of a finished mesh are distinct, so a stride names at
// most one atom.
#include "ir/mesh/mesh.h"

#include "ir/support/limits.h"
#include "ir/support/product.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::ir {

namespace {

// One past what the atom reaches from an offset: the stride of an atom that continues it.
int64_t extent(Atom atom) { return saturating_product(atom.size, atom.stride); }

struct PlacedAtom {
  Atom atom;
  AxisId axis;
};
using PlacedAtoms = llvm::SmallVector<PlacedAtom, 16>;

// Atoms of the unflattened axes, smallest stride first.
PlacedAtoms atoms_by_stride(const Mesh &mesh) {
  PlacedAtoms atoms;
  for (size_t i = 0; i < mesh.axes.size(); ++i)
    if (!mesh.axes[i].flattened)
      for (Atom atom : canonical(mesh.axes[i].layout))
        atoms.push_back({atom, AxisId{static_cast<uint8_t>(i)}});
  llvm::stable_sort(atoms, [](const PlacedAtom &a, const PlacedAtom &b) {
    return a.atom.stride < b.atom.stride;
  });
  return atoms;
}

// Index of the first atom whose stride the atoms before it reach; none if the atoms are orthogonal.
template <class Range, class Get>
std::optional<size_t> first_overlap(const Range &sorted, Get atom_of) {
  int64_t reach = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    Atom atom = atom_of(sorted[i]);
    int64_t step = saturating_product(atom.size - 1, atom.stride);
    if (atom.stride <= reach || __builtin_add_overflow(reach, step, &reach))
      return i;
  }
  return std::nullopt;
}

// What is left of `layout` outside its innermost part `atoms`; none if it does not end in them.
std::optional<Layout> without_inner(Layout layout, llvm::ArrayRef<Atom> atoms) {
  for (Atom atom : llvm::reverse(atoms)) {
    if (layout.empty())
      return std::nullopt;
    Atom &last = layout.back();
    if (last.stride != atom.stride || last.size % atom.size != 0)
      return std::nullopt;
    last = {last.size / atom.size, extent(atom)};
    if (last.size == 1)
      layout.pop_back();
  }
  return layout;
}

std::string quoted(const Mesh &mesh, const StringTable &names) {
  return "mesh `" + names[mesh.name].str() + "`";
}
std::string quoted(const Axis &axis, const StringTable &names) {
  return "axis `" + names[axis.name].str() + "`";
}

// The steps of finish(): each returns what is wrong, or nothing.

std::string check_axes(Mesh &mesh, const StringTable &names) {
  if (mesh.axes.size() > kMaxAxes)
    return quoted(mesh, names) + " has " + std::to_string(mesh.axes.size()) +
           " axes, and the limit is " + std::to_string(kMaxAxes);
  if (mesh.offset < 0 || mesh.offset > kMaxInteger)
    return quoted(mesh, names) + " has offset " + std::to_string(mesh.offset);
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    const Axis &axis = mesh.axes[i];
    if (mesh.find(axis.name)->index != i)
      return quoted(axis, names) + " stands twice in " + quoted(mesh, names);
    for (Atom atom : axis.layout) {
      if (atom.size < 1 || atom.size > kMaxInteger)
        return quoted(axis, names) + " has size " + std::to_string(atom.size);
      bool derived = atom.stride == 0 && !axis.explicit_stride && !axis.explicit_layout;
      if (!derived && (atom.stride < 1 || atom.stride > kMaxInteger))
        return quoted(axis, names) + " has stride " + std::to_string(atom.stride);
    }
  }
  return {};
}

std::string derive_strides(Mesh &mesh, const StringTable &names) {
  int64_t to_the_right = 1;
  for (Axis &axis : llvm::reverse(mesh.axes)) {
    if (axis.flattened || axis.explicit_layout)
      continue;
    for (Atom &atom : axis.layout)
      atom.stride = atom.stride == 0 ? to_the_right : atom.stride;
    to_the_right = saturating_product(to_the_right, axis.size());
    if (to_the_right > kMaxInteger)
      return quoted(mesh, names) + " has more than 2^53 ranks";
  }
  return {};
}

// Finds the axes behind an axis that is known by its layout only; it stands for itself where there
// are none.
std::string resolve_layouts(Mesh &mesh, const StringTable &) {
  llvm::SmallVector<Axis *, 4> open;
  for (Axis &axis : mesh.axes)
    if ((axis.flattened || axis.explicit_layout) && axis.pieces.empty()) {
      axis.flattened = true;
      open.push_back(&axis);
    }
  for (Axis *axis : open) {
    std::optional<llvm::SmallVector<AxisId, 4>> pieces = axes_of_layout(mesh, axis->layout);
    axis->flattened = pieces.has_value();
    if (pieces)
      axis->pieces.assign(pieces->begin(), pieces->end());
  }
  return {};
}

// Replaces flattened axes among the pieces of `axis` by their own pieces; `above` are the axes
// being expanded.
std::string expand(Mesh &mesh, AxisId id, AxisSet above, const StringTable &names) {
  Axis &axis = mesh.axes[id.index];
  if (above.contains(id))
    return "flattened " + quoted(axis, names) + " contains itself";
  llvm::SmallVector<AxisId, 4> expanded;
  AxisSet met;
  for (AxisId piece : axis.pieces) {
    if (piece.index >= mesh.axes.size())
      return "flattened " + quoted(axis, names) + " has a piece that is not in the mesh";
    if (mesh[piece].flattened)
      if (std::string wrong = expand(mesh, piece, above | id, names); !wrong.empty())
        return wrong;
    const Axis &part = mesh[piece];
    for (AxisId leaf : part.flattened ? llvm::ArrayRef<AxisId>(part.pieces) : piece) {
      if (met.contains(leaf))
        return "flattened " + quoted(axis, names) + " contains `" + names[mesh[leaf].name].str() +
               "` twice";
      met |= leaf;
      expanded.push_back(leaf);
    }
  }
  axis.pieces.assign(expanded.begin(), expanded.end());
  return {};
}

std::string expand_pieces(Mesh &mesh, const StringTable &names) {
  for (uint8_t i = 0; i < mesh.axes.size(); ++i) {
    Axis &axis = mesh.axes[i];
    if (!axis.flattened)
      continue;
    if (std::string wrong = expand(mesh, AxisId{i}, {}, names); !wrong.empty())
      return wrong;
    if (axis.layout.empty())
      axis.layout = layout_of_axes(mesh, axis.pieces);
  }
  return {};
}

std::string check_orthogonal(Mesh &mesh, const StringTable &names,
                             llvm::function_ref<std::string(int64_t)> number) {
  PlacedAtoms atoms = atoms_by_stride(mesh);
  int64_t reach = mesh.offset;
  for (const PlacedAtom &placed : atoms) {
    int64_t step = saturating_product(placed.atom.size - 1, placed.atom.stride);
    if (__builtin_add_overflow(reach, step, &reach) || reach > kMaxInteger)
      return quoted(mesh, names) + " has ranks beyond 2^53";
  }
  std::optional<size_t> at = first_overlap(atoms, [](const PlacedAtom &p) { return p.atom; });
  if (!at)
    return {};
  auto describe = [&](const PlacedAtom &placed) {
    return "`" + names[mesh[placed.axis].name].str() + "` (" + number(placed.atom.size) + ":" +
           number(placed.atom.stride) + ")";
  };
  return "axes " + describe(atoms[*at - 1]) + " and " + describe(atoms[*at]) + " of " +
         quoted(mesh, names) + " overlap: a stride must exceed what smaller strides reach";
}

} // namespace

int64_t Axis::size() const {
  int64_t size = 1;
  for (Atom atom : layout)
    size = saturating_product(size, atom.size);
  return size;
}

std::optional<AxisId> Mesh::find(StringId wanted) const {
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].name == wanted)
      return AxisId{static_cast<uint8_t>(i)};
  return std::nullopt;
}

AxisSet Mesh::pieces_of(AxisId axis) const {
  if (!axes[axis.index].flattened)
    return axis;
  AxisSet pieces;
  for (AxisId piece : axes[axis.index].pieces)
    pieces |= piece;
  return pieces;
}

int64_t Mesh::rank_count() const {
  int64_t count = 1;
  for (const Axis &axis : axes)
    if (!axis.flattened)
      count = saturating_product(count, axis.size());
  return count;
}

Layout canonical(llvm::ArrayRef<Atom> layout) {
  Layout result;
  for (Atom atom : layout) {
    if (atom.size == 1)
      continue;
    int64_t joined = 0;
    bool continues = !result.empty() && result.back().stride == extent(atom) &&
                     !__builtin_mul_overflow(result.back().size, atom.size, &joined);
    if (continues)
      result.back() = {joined, atom.stride};
    else
      result.push_back(atom);
  }
  return result;
}

bool orthogonal(llvm::ArrayRef<Atom> atoms) {
  llvm::SmallVector<Atom, 8> sorted;
  for (Atom atom : atoms)
    if (atom.size != 1)
      sorted.push_back(atom);
  llvm::sort(sorted, [](Atom a, Atom b) { return a.stride < b.stride; });
  return !first_overlap(sorted, [](Atom atom) { return atom; });
}

llvm::SmallVector<int64_t, 16> ranks_of(llvm::ArrayRef<Atom> layout, int64_t offset, size_t limit) {
  llvm::SmallVector<int64_t, 16> ranks = {offset};
  for (Atom atom : layout) {
    llvm::SmallVector<int64_t, 16> longer;
    for (int64_t rank : ranks)
      for (int64_t i = 0; i < atom.size && longer.size() < limit; ++i)
        longer.push_back(rank + i * atom.stride);
    ranks = std::move(longer);
  }
  return ranks;
}

std::optional<Layout> layout_of(llvm::ArrayRef<int64_t> ranks) {
  auto in_range = [](int64_t rank) { return rank >= 0 && rank <= kMaxInteger; };
  if (ranks.empty() || !llvm::all_of(ranks, in_range))
    return std::nullopt;
  Layout layout; // innermost first until the end
  llvm::SmallVector<int64_t, 16> heads(ranks.begin(), ranks.end());
  while (heads.size() > 1) {
    int64_t stride = heads[1] - heads[0];
    size_t run = 2;
    while (run < heads.size() && heads[run] - heads[run - 1] == stride)
      ++run;
    if (stride <= 0 || heads.size() % run != 0)
      return std::nullopt;
    for (size_t i = 0; i < heads.size(); ++i)
      if (heads[i] - heads[i - i % run] != static_cast<int64_t>(i % run) * stride)
        return std::nullopt;
    for (size_t i = 0; i < heads.size() / run; ++i)
      heads[i] = heads[i * run];
    heads.resize(heads.size() / run);
    layout.push_back({static_cast<int64_t>(run), stride});
  }
  std::reverse(layout.begin(), layout.end());
  if (!orthogonal(layout))
    return std::nullopt;
  return layout;
}

Layout layout_of_axes(const Mesh &mesh, llvm::ArrayRef<AxisId> axes) {
  Layout all;
  for (AxisId axis : axes)
    all.append(mesh[axis].layout.begin(), mesh[axis].layout.end());
  return canonical(all);
}

std::optional<llvm::SmallVector<AxisId, 4>> axes_of_layout(const Mesh &mesh,
                                                           llvm::ArrayRef<Atom> layout) {
  Layout rest = canonical(layout);
  llvm::SmallVector<AxisId, 4> found; // innermost first until the end
  AxisSet unused(static_cast<uint16_t>((1u << mesh.axes.size()) - 1));
  auto take_innermost = [&] {
    for (AxisId axis : unused) {
      Layout own = mesh[axis].flattened ? Layout() : canonical(mesh[axis].layout);
      std::optional<Layout> outer = own.empty() ? std::nullopt : without_inner(rest, own);
      if (!outer)
        continue;
      rest = *outer;
      unused -= axis;
      found.push_back(axis);
      return true;
    }
    return false;
  };
  while (!rest.empty())
    if (!take_innermost())
      return std::nullopt;
  std::reverse(found.begin(), found.end());
  return found;
}

std::optional<Layout> common_refinement(const Mesh &a, const Mesh &b) {
  if (a.offset != b.offset)
    return std::nullopt;
  PlacedAtoms left = atoms_by_stride(a), right = atoms_by_stride(b);
  Layout result; // innermost first until the end
  size_t i = 0, j = 0;
  while (i < left.size() && j < right.size()) {
    Atom &x = left[i].atom, &y = right[j].atom;
    Atom atom = {std::min(x.size, y.size), x.stride};
    if (x.stride != y.stride || x.size % atom.size != 0 || y.size % atom.size != 0)
      return std::nullopt;
    result.push_back(atom);
    for (Atom *side : {&x, &y})
      *side = {side->size / atom.size, extent(atom)};
    i += x.size == 1;
    j += y.size == 1;
  }
  if (i != left.size() || j != right.size())
    return std::nullopt;
  std::reverse(result.begin(), result.end());
  return result;
}

std::string finish(Mesh &mesh, const StringTable &names,
                   llvm::function_ref<std::string(int64_t)> number) {
  for (auto step : {check_axes, derive_strides, resolve_layouts, expand_pieces})
    if (std::string wrong = step(mesh, names); !wrong.empty())
      return wrong;
  if (std::string wrong = check_orthogonal(mesh, names, number); !wrong.empty())
    return wrong;
  mesh.typed = {};
  for (uint8_t i = 0; i < mesh.axes.size(); ++i)
    if (!mesh.axes[i].flattened && mesh.axes[i].size() != 1)
      mesh.typed |= AxisId{i};
  return {};
}

} // namespace spmd::ir
