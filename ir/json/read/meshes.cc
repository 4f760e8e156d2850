// Meshes of the JSON format: the four forms of an axis, and sub-meshes.
#include "ir/json/read/meshes.h"

#include "ir/mesh/symbols.h"
#include "ir/text/lexer.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::ir {

namespace {

constexpr size_t kMaxMeshes = Type::kGradientFree >> 1; // what a type has bits for

// The rank, from that at coordinate 0, at a coordinate of an axis.
int64_t rank_at(llvm::ArrayRef<Atom> layout, int64_t coordinate) {
  int64_t rank = 0;
  for (const Atom &atom : llvm::reverse(layout)) {
    rank += coordinate % atom.size * atom.stride;
    coordinate /= atom.size;
  }
  return rank;
}

constexpr std::array<std::string_view, 7> kAxisKeys = {"name",   "size",   "stride", "of",
                                                       "layout", "policy", "role"};
enum AxisKey : unsigned { Name, Size, Stride, Of, LayoutKey, PolicyKey, RoleKey };
constexpr std::array<std::string_view, 2> kPolicyWords = {"local", "global"};

} // namespace

void JsonMeshReader::groups() {
  json_.object([&](llvm::StringRef key) { group(key); });
}

void JsonMeshReader::group(llvm::StringRef key) {
  static constexpr std::array<std::string_view, 5> kKeys = {"mesh", "axes", "layout", "offset",
                                                            "ranks"};
  enum { MeshName, Axes, LayoutKey, Offset, Ranks };
  auto members = object(kKeys);
  Group group;
  group.key = builder_.string(key);
  if (members.at(MeshName) && members.has(Axes)) {
    group.mesh = types_.mesh_ref();
    members.at(Axes);
    Token token = json_.at();
    size_t before = json_.errors().size();
    if (group.mesh.valid())
      group.axes = types_.axes_of(group.mesh);
    if (group.mesh.valid() && group.axes.empty() && json_.errors().size() == before)
      json_.error(token, "trace-mesh", "a group has no axes");
  } else if (members.at(LayoutKey)) {
    group.form = Group::Form::Layout;
    layout({}, group.layout);
    if (members.at(Offset))
      group.offset = json_.integer(0, kMaxInteger, "trace-mesh").value_or(0);
  } else if (members.at(Ranks)) {
    group.form = Group::Form::Ranks;
    ranks(group);
  } else if (members) {
    json_.error(members.token(), "trace-mesh",
                "a group states neither `mesh` and `axes` nor `layout` nor `ranks`");
  }
  program_.groups.push_back(std::move(group));
}

void JsonMeshReader::ranks(Group &group) {
  llvm::DenseSet<int64_t> seen;
  Token list = json_.at();
  size_t before = json_.errors().size();
  json_.array([&](uint32_t) {
    Token token = json_.at();
    std::optional<int64_t> rank = json_.integer(0, kMaxInteger, "trace-mesh");
    if (!rank)
      return;
    group.ranks.push_back(*rank);
    if (!seen.insert(*rank).second)
      json_.error(token, "trace-mesh", fmt::format("rank {} stands twice in a group", *rank));
  });
  if (group.ranks.empty() && json_.errors().size() == before)
    json_.error(list, "trace-mesh", "a group has no ranks");
}

// A number, or an expression over symbols.
int64_t JsonMeshReader::ranks(const Mesh &mesh) {
  Token token = json_.at();
  std::optional<Extent> size = types_.extent("trace-mesh");
  std::string wrong;
  std::optional<int64_t> found = size ? symbol_prime(program_, mesh, *size, wrong) : std::nullopt;
  if (!wrong.empty())
    json_.error(token, "trace-mesh", std::move(wrong));
  return found.value_or(1);
}

void JsonMeshReader::meshes() {
  Token token = json_.at();
  size_t before = json_.errors().size();
  json_.array([&](uint32_t i) {
    mesh();
    if (i == kMaxMeshes)
      json_.fail(json_.offset(token), "trace-limit",
                 fmt::format("more than {} meshes are declared", kMaxMeshes), "meshes");
  });
  if (program_.meshes.empty() && json_.errors().size() == before)
    json_.error(token, "trace-mesh", "the list of meshes is empty");
}

void JsonMeshReader::mesh() {
  static constexpr std::array<std::string_view, 4> kKeys = {"id", "axes", "offset", "within"};
  enum { Name, Axes, Offset, Within };
  auto members = object(kKeys);
  require(members, Name, kKeys[Name]);
  require(members, Axes, kKeys[Axes]);
  size_t before = json_.errors().size();
  Mesh mesh;
  if (members.at(Name))
    mesh.name = identifier("a mesh");
  if (mesh.name.valid() && types_.mesh_named(program_.strings[mesh.name]).valid())
    json_.error(members.token(Name), "trace-duplicate",
                fmt::format("mesh `{}` is declared twice", program_.strings[mesh.name].str()));
  if (members.at(Within))
    within(mesh);
  if (members.at(Offset)) {
    mesh.offset = json_.integer(0, kMaxInteger, "trace-mesh").value_or(0);
    mesh.explicit_offset = true;
  }
  if (members.at(Axes))
    axes(mesh);
  if (!members || json_.failed() || json_.errors().size() != before || !mesh.name.valid())
    return;
  if (std::string wrong = finish_mesh(program_, mesh); !wrong.empty())
    json_.error(members.token(), "trace-mesh", std::move(wrong));
  else
    program_.meshes.add(std::move(mesh));
}

void JsonMeshReader::within(Mesh &mesh) {
  static constexpr std::array<std::string_view, 2> kKeys = {"mesh", "at"};
  auto members = object(kKeys);
  require(members, 0, kKeys[0]);
  MeshId parent = members.at(0) ? types_.mesh_ref() : MeshId();
  if (!parent.valid())
    return;
  mesh.within = SubMesh{.parent = parent, .at = {}};
  mesh.offset = program_.meshes[parent].offset;
  if (!members.at(1))
    return;
  json_.object([&](llvm::StringRef name) {
    Token token = json_.at();
    std::string wrong;
    std::optional<FoundAxis> found =
        find_axis(program_, parent, {{}, builder_.string(name)}, wrong);
    std::optional<int64_t> at = json_.integer(0, kMaxInteger, "trace-mesh");
    if (!found)
      return json_.error(token, "trace-mesh", std::move(wrong));
    const Axis &axis = program_.meshes[parent][found->axis];
    if (at && (axis.flattened || *at >= axis.size()))
      return json_.error(token, "trace-mesh",
                         fmt::format("axis `{}` has no coordinate {}", name.str(), *at));
    mesh.within->at.push_back({found->axis, at.value_or(0)});
    mesh.offset += rank_at(axis.layout, at.value_or(0));
  });
}

void JsonMeshReader::axes(Mesh &mesh) {
  llvm::SmallVector<std::pair<unsigned, Token>, 4> pieces; // found once every axis has its name
  Token token = json_.at();
  json_.array([&](uint32_t i) {
    if (i == kMaxAxes)
      json_.error(token, "trace-limit", fmt::format("a mesh has more than {} axes", kMaxAxes));
    if (i >= kMaxAxes)
      return json_.skip();
    Token of = JsonCursor::kAbsent;
    mesh.axes.push_back(json_.peek() == '"' ? axis_of_parent(mesh) : axis(mesh, of));
    if (of != JsonCursor::kAbsent)
      pieces.push_back({i, of});
  });
  Token end = json_.at();
  if (mesh.axes.empty() && !json_.failed())
    json_.error(token, "trace-mesh", "a mesh has no axes");
  for (auto [i, of] : pieces) {
    json_.seek(of);
    axis_pieces(mesh, mesh.axes[i]);
  }
  json_.seek(end);
}

Axis JsonMeshReader::axis(const Mesh &mesh, Token &of) {
  auto members = object(kAxisKeys);
  require(members, Name, kAxisKeys[Name]);
  Axis axis;
  if (members.at(Name))
    axis.name = identifier("an axis");
  if (members.has(Of)) {
    of = members.token(Of);
    axis.flattened = true;
  } else if (members.at(LayoutKey)) {
    axis.explicit_layout = true;
    layout(mesh, axis.layout);
  } else if (members.at(Size)) {
    Atom atom{.size = ranks(mesh), .stride = 0};
    axis.explicit_stride = members.at(Stride);
    if (axis.explicit_stride)
      atom.stride = ranks(mesh);
    axis.layout = {atom};
  } else if (members) {
    json_.error(members.token(), "trace-mesh", "an axis states none of `size`, `of`, `layout`");
  }
  unsigned policy = 0;
  if (members.at(PolicyKey) && word(kPolicyWords, "policy", policy))
    axis.policy = policy == 0 ? Policy::Local : Policy::Global;
  if (members.at(RoleKey))
    axis.role = text();
  return axis;
}

Axis JsonMeshReader::axis_of_parent(const Mesh &mesh) {
  Token token = json_.at();
  Axis axis;
  axis.name = identifier("an axis");
  axis.layout = {Atom{}};
  if (!axis.name.valid())
    return axis;
  if (!mesh.within) {
    json_.error(token, "trace-mesh",
                fmt::format("axis `{}` has no size, and the mesh no parent",
                            program_.strings[axis.name].str()));
    return axis;
  }
  std::string wrong;
  std::optional<FoundAxis> found = find_axis(program_, mesh.within->parent, {{}, axis.name}, wrong);
  if (!found) {
    json_.error(token, "trace-mesh", std::move(wrong));
    return axis;
  }
  axis = program_.meshes[mesh.within->parent][found->axis];
  // The parent's pieces are no axes of this mesh; finish() finds those that are.
  axis.explicit_layout |= axis.flattened;
  axis.explicit_stride = !axis.flattened;
  axis.pieces.clear();
  axis.flattened = false;
  return axis;
}

void JsonMeshReader::axis_pieces(const Mesh &mesh, Axis &axis) {
  Token token = json_.at();
  json_.array([&](uint32_t) {
    Token token = json_.at();
    std::optional<llvm::StringRef> name = json_.string();
    if (!name)
      return;
    if (std::optional<AxisId> found = mesh.find(builder_.string(*name)))
      axis.pieces.push_back(*found);
    else
      json_.error(token, "trace-mesh",
                  fmt::format("the mesh has no axis `{}`", name->take_front(60).str()));
  });
  if (axis.pieces.empty())
    json_.error(token, "trace-mesh", "a flattened axis has no pieces");
}

void JsonMeshReader::layout(const Mesh &mesh, Layout &layout) {
  Token token = json_.at();
  json_.array([&](uint32_t) {
    Token token = json_.at();
    unsigned length = 0;
    Atom atom;
    json_.array([&](uint32_t i) {
      int64_t number = ranks(mesh);
      (i == 0 ? atom.size : atom.stride) = number;
      ++length;
    });
    if (length == 2 && (atom.size < 1 || atom.stride < 1))
      json_.error(token, "trace-mesh", "a piece of a layout has size or stride 0");
    if (length != 2)
      json_.error(token, "trace-mesh", "a piece of a layout is not a size and a stride");
    layout.push_back(atom);
  });
  if (layout.empty())
    json_.error(token, "trace-mesh", "a layout has no pieces");
}

} // namespace spmd::ir
