// Meshes and groups in the text form. finish() in mesh.h derives strides and checks the layout;
// this file knows how it is spelled, and where a sub-mesh lies in its parent.
#include "ir/text/read/meshes.h"

#include "ir/mesh/symbols.h"
#include "ir/support/format.h"

#include <fmt/core.h>

namespace spmd::ir {

bool TextMeshReader::read_mesh() {
  Token token = peek();
  std::optional<StringId> stated = name("a mesh");
  if (!stated)
    return false;
  if (peek().ends_statement()) {
    // `mesh m` makes a declared mesh the current one again.
    in_.next.reset();
    in_.lexer.seek(token.offset);
    std::optional<MeshId> found = types_.mesh_name();
    in_.context.mesh = found.value_or(in_.context.mesh);
    in_.context.local = {};
    return true;
  }
  if (types_.mesh_named(token.text).valid())
    error(token, "trace-duplicate", fmt::format("mesh `{}` is declared twice", token.text));
  Mesh mesh;
  mesh.name = *stated;
  if (take_word("within") && !read_within(mesh))
    return false;
  if (!list('{', '}', [&] { return read_axis(mesh); }))
    return false;
  if (take_word("offset")) {
    std::optional<int64_t> offset = integer("an offset", 0, "trace-mesh");
    if (!offset)
      return false;
    mesh.offset = *offset;
    mesh.explicit_offset = true;
  }
  add_mesh(std::move(mesh), token);
  return true;
}

void TextMeshReader::add_mesh(Mesh mesh, const Token &token) {
  if (mesh.axes.size() > kMaxAxes) {
    error(token, "trace-limit",
          fmt::format("mesh `{}` has {} axes, and the limit is {}", token.text, mesh.axes.size(),
                      kMaxAxes));
    mesh.axes.truncate(kMaxAxes);
  } else if (mesh.axes.empty())
    error(token, "trace-mesh", fmt::format("mesh `{}` has no axes", token.text));
  else {
    resolve_pieces(mesh, token);
    if (std::string wrong = finish_mesh(program_, mesh); !wrong.empty())
      error(token, "trace-mesh", std::move(wrong));
  }
  in_.context = {};
  in_.context.mesh = program_.meshes.add(std::move(mesh));
  if (program_.meshes.size() > (Type::kGradientFree >> 1))
    fail("there are too many meshes");
}

// `within parent { axis = coordinate }`.
bool TextMeshReader::read_within(Mesh &mesh) {
  size_t before = in_.result.errors.size();
  std::optional<MeshId> parent = types_.mesh_name();
  if (!parent)
    return false;
  if (in_.result.errors.size() > before || !parent->valid())
    return operands_.skip_attr(); // the coordinates say nothing without their mesh
  mesh.within = SubMesh{*parent, {}};
  mesh.offset = program_.meshes[*parent].offset;
  return dict([&](const Token &at, Key key) { return read_coordinate(mesh, at, key); });
}

bool TextMeshReader::read_coordinate(Mesh &mesh, const Token &token, Key key) {
  const Mesh &parent = program_.meshes[mesh.within->parent];
  std::string wrong;
  std::optional<FoundAxis> found =
      find_axis(program_, mesh.within->parent, {{}, builder_.string(key)}, wrong);
  std::optional<int64_t> at = integer("a coordinate", 0, "trace-mesh");
  if (!at)
    return false;
  if (!found)
    error(token, "trace-mesh", std::move(wrong));
  else if (parent[found->axis].flattened || *at >= parent[found->axis].size())
    error(token, "trace-mesh", fmt::format("axis `{}` has no coordinate {}", key, *at));
  else {
    mesh.within->at.push_back({found->axis, *at});
    mesh.offset += rank_at(parent[found->axis].layout, *at);
  }
  return true;
}

// The rank at a coordinate of a layout, innermost piece fastest.
int64_t TextMeshReader::rank_at(const Layout &layout, int64_t coordinate) {
  int64_t rank = 0;
  for (Atom atom : llvm::reverse(layout)) {
    rank += coordinate % atom.size * atom.stride;
    coordinate /= atom.size;
  }
  return rank;
}

bool TextMeshReader::read_axis(Mesh &mesh) {
  Token token = peek();
  std::optional<StringId> stated = name("an axis");
  if (!stated)
    return false;
  Axis axis;
  axis.name = *stated;
  if (take_if('=')) {
    if (!read_axis_layout(mesh, axis))
      return false;
  } else
    take_parent_axis(mesh, axis, token);
  for (Policy policy : {Policy::Local, Policy::Global})
    if (take_word(policy == Policy::Local ? "local" : "global"))
      axis.policy = policy;
  if (peek().kind == TokenKind::String) {
    std::optional<std::string> role = string("a role");
    if (!role)
      return false;
    axis.role = builder_.string(*role);
  }
  mesh.axes.push_back(std::move(axis));
  return true;
}

// An axis of the parent mesh, unchanged.
void TextMeshReader::take_parent_axis(const Mesh &mesh, Axis &axis, const Token &token) {
  std::string wrong =
      fmt::format("axis `{}` has no size, and its mesh is within no other", token.text);
  std::optional<FoundAxis> found;
  if (mesh.within)
    found = find_axis(program_, mesh.within->parent, {{}, axis.name}, wrong);
  if (!found) {
    error(token, "trace-mesh", std::move(wrong));
    axis.layout = {{1, 1}};
    return;
  }
  // The parent's pieces are no axes of this mesh; finish() finds those that are.
  axis = program_.meshes[mesh.within->parent][found->axis];
  axis.explicit_layout |= axis.flattened;
  axis.explicit_stride = !axis.flattened;
  axis.pieces.clear();
  axis.flattened = false;
}

// `(dp, tp)`, and not `(2 * n)`.
bool TextMeshReader::at_axis_names() {
  Token open = peek();
  if (!open.is('('))
    return false;
  take();
  bool name = take().kind == TokenKind::Name, alone = peek().is(',') || peek().is(')');
  bool empty = !name && alone;
  in_.next.reset();
  in_.lexer.seek(open.offset);
  return (name && alone) || empty;
}

bool TextMeshReader::read_axis_layout(Mesh &mesh, Axis &axis) {
  Token open = peek();
  auto made_of = [&](bool nothing) {
    if (nothing)
      error(open, "trace-mesh", "a flattened axis has no pieces");
    return true;
  };
  if (at_axis_names()) {
    axis.flattened = true;
    auto &pieces = pieces_[mesh.axes.size()];
    pieces.clear();
    bool read = list('(', ')', [&] {
      Token token = peek();
      std::optional<StringId> piece = name("an axis");
      if (piece)
        pieces.push_back(token);
      return piece.has_value();
    });
    return read && made_of(pieces.empty());
  }
  if (peek().is('[')) {
    axis.explicit_layout = true;
    return list('[', ']', [&] { return read_atom(mesh, axis.layout, true); }) &&
           made_of(axis.layout.empty());
  }
  if (!read_atom(mesh, axis.layout, false))
    return false;
  axis.explicit_stride = axis.layout.back().stride != 0;
  return true;
}

// `size` or `size:stride`; the stride is 0 where it is not stated.
bool TextMeshReader::read_atom(const Mesh &mesh, Layout &layout, bool needs_stride) {
  std::optional<int64_t> size = read_ranks(mesh, "a size");
  if (!size)
    return false;
  Atom atom{*size, 0};
  if (take_if(':')) {
    std::optional<int64_t> stride = read_ranks(mesh, "a stride");
    if (!stride)
      return false;
    atom.stride = *stride;
  } else if (needs_stride) {
    error(peek(), "trace-mesh", "a piece of a layout has no stride");
    atom.stride = 1;
  }
  layout.push_back(atom);
  return true;
}

// A number, or an expression over symbols.
std::optional<int64_t> TextMeshReader::read_ranks(const Mesh &mesh, std::string_view what) {
  Token token = peek();
  bool symbols = token.kind == TokenKind::Name || token.is('(');
  std::optional<Extent> size;
  if (symbols)
    size = types_.extent();
  else if (std::optional<int64_t> number = integer(what, 1, "trace-mesh"))
    size = *number;
  if (!size)
    return std::nullopt;
  std::string wrong;
  std::optional<int64_t> found = symbol_prime(program_, mesh, *size, wrong);
  if (!found)
    error(token, "trace-mesh", std::move(wrong));
  else if (*found == 0)
    error(token, "trace-mesh", fmt::format("{} is 0", what));
  return std::max<int64_t>(1, found.value_or(1));
}

// Pieces may stand before or after the axis that they make up.
void TextMeshReader::resolve_pieces(Mesh &mesh, const Token &token) {
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    Axis &axis = mesh.axes[i];
    if (!axis.flattened || axis.explicit_layout)
      continue;
    for (const Token &piece : pieces_[i]) {
      std::optional<AxisId> found = mesh.find(builder_.string(piece.text));
      if (found) {
        axis.pieces.push_back(*found);
        continue;
      }
      llvm::SmallVector<llvm::StringRef, 8> known;
      for (const Axis &other : mesh.axes)
        known.push_back(program_.strings[other.name]);
      error(piece, "trace-mesh",
            fmt::format("mesh `{}` has no axis `{}`{}", token.text, piece.text,
                        nearest_suffix(piece.text, known)));
    }
  }
}

bool TextMeshReader::read_group() {
  Token token = peek();
  std::optional<std::string> key = string("a key in quotes");
  if (!key || !expect('='))
    return false;
  Group group;
  group.key = builder_.string(*key);
  if (!groups_.insert(group.key.index).second)
    error(token, "trace-key", fmt::format("group `{}` is declared twice", *key));
  if (!(peek().is('[') ? read_group_ranks(group) : read_group_axes(group)))
    return false;
  if (Token at = peek(); take_word("offset")) {
    std::optional<int64_t> offset = integer("an offset", 0, "trace-mesh");
    if (!offset)
      return false;
    if (group.form != Group::Form::Layout)
      error(at, "trace-mesh", "an offset stands behind what is no layout");
    group.offset = *offset;
  }
  program_.groups.push_back(std::move(group));
  return true;
}

bool TextMeshReader::read_group_axes(Group &group) {
  std::optional<MeshId> found = types_.mesh_name();
  if (!found || !expect('.'))
    return false;
  group.mesh = *found;
  Token token = peek();
  std::optional<AxisRefs> refs = types_.axes();
  if (!refs || !found->valid())
    return refs.has_value();
  for (AxisRef ref : refs->refs) {
    std::string wrong;
    if (std::optional<FoundAxis> axis = find_axis(program_, *found, {{}, ref.axis}, wrong))
      group.axes.push_back(axis->axis);
    else
      error(token, "trace-mesh", std::move(wrong));
  }
  return true;
}

// `[4:1, 2:8]` is a layout, `[0, 3, 5]` a list of ranks.
bool TextMeshReader::read_group_ranks(Group &group) {
  Token token = peek();
  Layout atoms;
  bool ok = list('[', ']', [&] {
    Token first = peek();
    bool symbols = first.kind == TokenKind::Name || first.is('(');
    std::optional<int64_t> number =
        symbols ? read_ranks({}, "a size") : integer("a rank", 0, "trace-mesh");
    if (!number)
      return false;
    Atom atom{*number, 0};
    if (take_if(':')) {
      std::optional<int64_t> stride = read_ranks({}, "a stride");
      if (!stride)
        return false;
      atom.stride = *stride;
      if (*number == 0)
        error(first, "trace-mesh", "a piece of a layout has size 0");
      if (std::string wrong; !symbols && !symbol_prime(program_, {}, *number, wrong))
        error(first, "trace-mesh", std::move(wrong));
    }
    atoms.push_back(atom);
    return true;
  });
  if (!ok)
    return false;
  auto strided = llvm::count_if(atoms, [](Atom atom) { return atom.stride != 0; });
  bool layout = strided > 0;
  if (atoms.empty() || (layout && strided != static_cast<ptrdiff_t>(atoms.size())))
    error(token, "trace-mesh", "a group is neither ranks nor a layout of size:stride");
  group.form = layout ? Group::Form::Layout : Group::Form::Ranks;
  if (layout)
    group.layout = atoms;
  llvm::DenseSet<int64_t> seen;
  for (Atom atom : layout ? Layout() : atoms) {
    group.ranks.push_back(atom.size);
    if (!seen.insert(atom.size).second)
      error(token, "trace-mesh", fmt::format("rank {} stands twice in a group", atom.size));
  }
  return true;
}

} // namespace spmd::ir
