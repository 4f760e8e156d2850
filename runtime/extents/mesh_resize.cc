// Cuts ranks into digits, gives digits other sizes, and puts meshes together again.
#include "runtime/extents/mesh_resize.h"

#include "ir/support/arrays.h"
#include "ir/support/error.h"
#include "runtime/tensor/element_bytes.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <numeric>

namespace spmd::runtime {

using ir::Atom;
using ir::Axis;
using ir::Layout;
using ir::Mesh;
using ir::Program;

llvm::Expected<MeshResize> MeshResize::make(const Program &program) {
  std::vector<int64_t> cuts{1};
  for (const Mesh &mesh : program.meshes)
    for (const Axis &axis : mesh.axes)
      for (Atom atom : axis.layout)
        if (atom.size > 1) {
          cuts.push_back(atom.stride);
          cuts.push_back(atom.stride * atom.size);
        }
  llvm::sort(cuts);
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  MeshResize made;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    if (cuts[i + 1] % cuts[i] != 0)
      return make_error("the meshes of the program cut one another; their axes keep their sizes");
    int64_t size = cuts[i + 1] / cuts[i];
    made.pieces_.push_back({cuts[i], size, cuts[i], size});
  }
  return made;
}

llvm::MutableArrayRef<MeshResize::Piece> MeshResize::pieces_of(Atom atom) {
  llvm::ArrayRef<Piece> found = std::as_const(*this).pieces_of(atom);
  return {const_cast<Piece *>(found.data()), found.size()};
}

llvm::ArrayRef<MeshResize::Piece> MeshResize::pieces_of(Atom atom) const {
  size_t first = 0;
  while (first < pieces_.size() && pieces_[first].stride < atom.stride)
    ++first;
  size_t last = first;
  while (last < pieces_.size() && pieces_[last].stride < atom.stride * atom.size)
    ++last;
  return ir::as_array(pieces_).slice(first, last - first);
}

void MeshResize::place() {
  int64_t stride = 1;
  for (Piece &piece : pieces_) {
    piece.new_stride = stride;
    stride *= piece.new_size;
  }
}

llvm::Error MeshResize::set(const Program &program, llvm::StringRef name, int64_t size) {
  const Axis *found = nullptr;
  for (const Mesh &mesh : program.meshes)
    for (const Axis &axis : mesh.axes) {
      std::string qualified =
          program.strings[mesh.name].str() + "." + program.strings[axis.name].str();
      if (name == program.strings[axis.name] || name == qualified)
        found = found && !found->flattened ? found : &axis;
    }
  if (!found)
    return make_error(fmt::format("no mesh has an axis `{}`", name.str()));
  if (found->size() == 1 && size != 1)
    return make_error(fmt::format(
        "the axis `{}` has one rank; what would differ on more is not known", name.str()));
  int64_t left = size;
  llvm::SmallVector<Piece *, 4> pieces; // innermost first
  for (Atom atom : llvm::reverse(found->layout))
    if (atom.size > 1)
      for (Piece &piece : pieces_of(atom))
        pieces.push_back(&piece);
  // Inner pieces keep what divides; the outermost takes the rest.
  for (size_t i = 0; i < pieces.size(); ++i) {
    bool last = i + 1 == pieces.size();
    int64_t own = last ? left : std::gcd(pieces[i]->size, left);
    if (pieces[i]->stated && pieces[i]->new_size != own)
      return make_error(
          fmt::format("the axis `{}` cannot have {} ranks: it is made of axes that have "
                      "other sizes",
                      name.str(), size));
    pieces[i]->new_size = own;
    pieces[i]->stated = true;
    left /= own;
  }
  place();
  return llvm::Error::success();
}

void MeshResize::shrink() {
  for (Piece &piece : pieces_)
    if (!piece.stated)
      piece.new_size = std::min<int64_t>(piece.size, 2);
  place();
}

llvm::Error MeshResize::resolve(const Program &program,
                                llvm::function_ref<std::optional<int64_t>(ir::Extent)> value) {
  for (Piece &piece : pieces_) {
    int64_t left = piece.size, values = 1;
    for (ir::SymbolPrime each : program.symbol_primes)
      for (; left % each.prime == 0; left /= each.prime) {
        ir::Extent atom = ir::Extent::symbolic(each.atom);
        std::optional<int64_t> number = value(atom);
        if (!number || *number < 1) {
          std::string text = ir::print(atom, program.exprs, program.strings);
          return make_error(
              fmt::format("the size of an axis is `{}`, and a run needs a number: give one with "
                          "--set={}=N, or by the axis with --mesh=AXIS=N",
                          text, text));
        }
        values *= *number;
      }
    piece.new_size = left * values;
  }
  place();
  return llvm::Error::success();
}

bool MeshResize::changes() const {
  return llvm::any_of(pieces_, [](const Piece &piece) { return piece.size != piece.new_size; });
}

int64_t MeshResize::old_size(const Axis &axis) const { return axis.size(); }

int64_t MeshResize::new_size(const Axis &axis) const {
  int64_t size = 1;
  for (Atom atom : axis.layout)
    if (atom.size > 1)
      for (const Piece &piece : pieces_of(atom))
        size *= piece.new_size;
  return size;
}

int64_t MeshResize::rank(int64_t old) const {
  int64_t moved = 0;
  for (const Piece &piece : pieces_)
    moved += std::min(old / piece.stride % piece.size, piece.new_size - 1) * piece.new_stride;
  return moved;
}

Layout MeshResize::layout(llvm::ArrayRef<Atom> old) const {
  Layout made;
  for (Atom atom : old) {
    if (atom.size == 1)
      continue;
    llvm::ArrayRef<Piece> pieces = pieces_of(atom);
    Atom moved{1, pieces.front().new_stride};
    for (const Piece &piece : pieces)
      moved.size *= piece.new_size;
    made.push_back(moved);
  }
  if (made.empty())
    made.push_back({1, 1});
  return made;
}

namespace {

// Forgets what a type says on axes that are gone.
ir::TypeId without_axes(Program &program, ir::TypeId id) {
  if (!id.valid())
    return id;
  ir::Type type = program.types[id];
  ir::AxisSet gone = type.claimed() - program.meshes[type.mesh()].typed_axes();
  if (gone.empty())
    return id;
  type.clear(gone);
  type.renumber_shard_orders();
  return program.types.add(type);
}

} // namespace

llvm::Error MeshResize::apply(Program &program) const {
  if (!changes())
    return llvm::Error::success();
  int64_t ranks = 1;
  for (uint16_t m = 0; m < program.meshes.size(); ++m) {
    Mesh &mesh = program.meshes[ir::MeshId{m}];
    for (Axis &axis : mesh.axes)
      axis.layout = layout(axis.layout);
    mesh.offset = rank(mesh.offset);
    mesh.typed = {};
    for (uint8_t i = 0; i < mesh.axes.size(); ++i)
      if (!mesh.axes[i].flattened && mesh.axes[i].size() != 1)
        mesh.typed |= ir::AxisId{i};
    if (mesh.within)
      for (auto &[axis, at] : mesh.within->at)
        at = std::min(at, program.meshes[mesh.within->parent][axis].size() - 1);
    ranks = std::max(ranks, mesh.rank_count());
  }
  for (ir::Group &group : program.groups) {
    if (group.form == ir::Group::Form::Ranks) {
      std::optional<Layout> regular = ir::layout_of(group.ranks);
      if (!regular)
        return make_error("a group of ranks is no grid; the axes keep their sizes");
      int64_t offset = rank(group.ranks.front());
      group.ranks.clear();
      group.ranks.append(ir::ranks_of(layout(*regular), offset));
    }
    group.layout = group.layout.empty() ? group.layout : layout(group.layout);
    group.offset = rank(group.offset);
  }
  if (program.world)
    program.world = ranks;
  program.axis_scales = {};
  program.symbol_primes.clear();
  for (uint32_t i = 0; i < program.values.size(); ++i) {
    ir::Value &value = program.values[ir::ValueId{i}];
    value.declared = without_axes(program, value.declared);
  }
  for (ir::Output &output : program.outputs)
    output.declared = without_axes(program, output.declared);
  return llvm::Error::success();
}

} // namespace spmd::runtime
