// The axis algebra: tables of cases, then properties over all layouts of small meshes and over
// random meshes.
#include "ir/mesh/mesh.h"
#include "tests/unit/catch.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

using namespace spmd::ir;

namespace {

using Ranks = std::vector<int64_t>;

struct AxisRow {
  const char *name;
  int64_t size;
  int64_t stride = 0; // 0: derived
};

Axis plain_axis(StringTable &names, AxisRow row) {
  Axis axis;
  axis.name = names.add(row.name);
  axis.layout = {{row.size, row.stride}};
  axis.explicit_stride = row.stride != 0;
  return axis;
}

Axis layout_axis(StringTable &names, const char *name, Layout layout) {
  Axis axis;
  axis.name = names.add(name);
  axis.layout = std::move(layout);
  axis.explicit_layout = true;
  return axis;
}

Axis flattened_axis(StringTable &names, const char *name, std::vector<uint8_t> pieces) {
  Axis axis;
  axis.name = names.add(name);
  axis.flattened = true;
  for (uint8_t piece : pieces)
    axis.pieces.push_back(AxisId{piece});
  return axis;
}

Mesh mesh_of(StringTable &names, std::vector<AxisRow> rows) {
  Mesh mesh;
  mesh.name = names.add("m");
  for (AxisRow row : rows)
    mesh.axes.push_back(plain_axis(names, row));
  return mesh;
}

Mesh finished(StringTable &names, std::vector<AxisRow> rows) {
  Mesh mesh = mesh_of(names, std::move(rows));
  REQUIRE(finish(mesh, names) == "");
  return mesh;
}

Ranks as_ranks(const llvm::SmallVectorImpl<int64_t> &list) { return {list.begin(), list.end()}; }

std::vector<int> indices(const std::optional<llvm::SmallVector<AxisId, 4>> &axes) {
  if (!axes)
    return {-1};
  std::vector<int> result;
  for (AxisId axis : *axes)
    result.push_back(axis.index);
  return result;
}

// Every sequence of distinct axes of the mesh.
std::vector<std::vector<AxisId>> sequences(size_t axes) {
  std::vector<std::vector<AxisId>> all = {{}};
  for (size_t next = 0; next < all.size(); ++next)
    for (uint8_t i = 0; i < axes; ++i)
      if (std::find(all[next].begin(), all[next].end(), AxisId{i}) == all[next].end()) {
        all.push_back(all[next]);
        all.back().push_back(AxisId{i});
      }
  return all;
}

// A random split of 2^k..3^k ranks into axes, in a random order, with gaps between some strides.
Mesh random_mesh(StringTable &names, std::mt19937 &random) {
  static const char *const kNames[] = {"a", "b", "c", "d", "e"};
  auto pick = [&](int n) { return static_cast<int64_t>(random() % n); };
  std::vector<AxisRow> rows;
  int64_t stride = 1;
  for (int64_t i = 0, count = 1 + pick(5); i < count; ++i) {
    int64_t size = 1 + pick(4);
    rows.push_back({kNames[i], size, stride});
    stride *= size * (1 + pick(2));
  }
  std::shuffle(rows.begin(), rows.end(), random);
  return finished(names, rows);
}

Ranks all_ranks(const Mesh &mesh) {
  Ranks ranks = {mesh.offset};
  for (const Axis &axis : mesh.axes)
    if (!axis.flattened) {
      Ranks longer;
      for (int64_t rank : ranks)
        for (int64_t reached : ranks_of(axis.layout, rank))
          longer.push_back(reached);
      ranks = longer;
    }
  return ranks;
}

} // namespace

TEST_CASE("layouts have one canonical form") {
  struct Row {
    Layout written, expected;
  };
  const Row rows[] = {
      {{}, {}},
      {{{1, 7}}, {}},
      {{{4, 2}, {2, 1}}, {{8, 1}}},
      {{{2, 8}, {1, 3}, {4, 2}, {2, 1}}, {{16, 1}}},
      {{{2, 1}, {4, 2}}, {{2, 1}, {4, 2}}},
      {{{2, 8}, {2, 1}}, {{2, 8}, {2, 1}}},
      {{{INT64_MAX, 4}, {4, 1}}, {{INT64_MAX, 4}, {4, 1}}},
  };
  for (const Row &row : rows)
    CHECK(canonical(row.written) == row.expected);
}

TEST_CASE("orthogonality is mixed radix") {
  CHECK(orthogonal(Layout{}));
  CHECK(orthogonal(Layout{{4, 4}, {4, 1}}));
  CHECK(orthogonal(Layout{{4, 1}, {4, 4}}));
  CHECK(orthogonal(Layout{{2, 8}, {3, 1}}));
  CHECK(orthogonal(Layout{{1, 1}, {2, 1}}));
  CHECK_FALSE(orthogonal(Layout{{2, 1}, {2, 1}}));
  CHECK_FALSE(orthogonal(Layout{{2, 2}, {3, 1}}));
  CHECK_FALSE(orthogonal(Layout{{2, INT64_MAX}, {3, INT64_MAX / 2}}));
}

TEST_CASE("rank lists and layouts name one another") {
  struct Row {
    Ranks ranks;
    Layout layout;
  };
  const Row rows[] = {
      {{5}, {}},
      {{0, 1, 2, 3}, {{4, 1}}},
      {{0, 1, 8, 9}, {{2, 8}, {2, 1}}},
      {{0, 8, 1, 9}, {{2, 1}, {2, 8}}},
      {{3, 5, 11, 13, 19, 21}, {{3, 8}, {2, 2}}},
      {{0, 1, 4, 5, 16, 17, 20, 21}, {{2, 16}, {2, 4}, {2, 1}}},
  };
  for (const Row &row : rows) {
    CHECK(layout_of(row.ranks) == std::optional<Layout>(row.layout));
    CHECK(as_ranks(ranks_of(row.layout, row.ranks.front())) == row.ranks);
  }
  const Ranks irregular[] = {{},           {1, 0},    {0, 0},       {0, 1, 3},
                             {0, 1, 3, 2}, {-1, 0},   {0, 1, 1, 2}, {0, 1, 2, 4, 5, 6, 9, 10},
                             {0, 1, 2, 9}, {0, 2, 1}, {0, 1, 0, 1}, {0, INT64_MAX}};
  for (const Ranks &ranks : irregular)
    CHECK_FALSE(layout_of(ranks));
  CHECK(as_ranks(ranks_of(Layout{{1 << 20, 8}, {8, 1}}, 4, 3)) == Ranks{4, 5, 6});
}

TEST_CASE("every group of a small mesh round-trips through its ranks") {
  StringTable names;
  Mesh mesh = finished(names, {{"a", 2, 12}, {"b", 3, 1}, {"c", 1}, {"d", 4, 3}});
  for (const std::vector<AxisId> &axes : sequences(mesh.axes.size())) {
    Layout layout = layout_of_axes(mesh, axes);
    CHECK(layout_of(ranks_of(layout, 7)) == std::optional<Layout>(layout));
  }
}

TEST_CASE("axes of a layout") {
  StringTable names;
  Mesh mesh = finished(names, {{"pp", 2}, {"dp", 4}, {"one", 1}, {"tp", 2}}); // 8, 2, 2, 1
  struct Row {
    Layout layout;
    std::vector<int> axes; // -1: none
  };
  const Row rows[] = {
      {{}, {}},
      {{{1, 5}}, {}},
      {{{2, 1}}, {3}},
      {{{8, 1}}, {1, 3}},
      {{{16, 1}}, {0, 1, 3}},
      {{{2, 1}, {4, 2}}, {3, 1}},
      {{{2, 8}, {2, 1}}, {0, 3}},
      {{{4, 1}}, {-1}},         // would cut dp
      {{{2, 2}}, {-1}},         // half of dp
      {{{2, 16}}, {-1}},        // beyond the mesh
      {{{2, 1}, {2, 1}}, {-1}}, // tp twice
      {{{32, 1}}, {-1}},        // more ranks than there are
      {{{3, 1}}, {-1}},
  };
  for (const Row &row : rows)
    CHECK(indices(axes_of_layout(mesh, row.layout)) == row.axes);
}

TEST_CASE("axes of a layout of axes are those axes") {
  std::mt19937 random(20240607);
  for (int round = 0; round < 200; ++round) {
    StringTable names;
    Mesh mesh = random_mesh(names, random);
    for (const std::vector<AxisId> &axes : sequences(mesh.axes.size())) {
      std::vector<int> expected;
      for (AxisId axis : axes)
        if (mesh[axis].size() != 1)
          expected.push_back(axis.index);
      REQUIRE(indices(axes_of_layout(mesh, layout_of_axes(mesh, axes))) == expected);
    }
  }
}

TEST_CASE("ranks of a random mesh are all different") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    StringTable names;
    Mesh mesh = random_mesh(names, random);
    Ranks ranks = all_ranks(mesh);
    CHECK(std::set<int64_t>(ranks.begin(), ranks.end()).size() == ranks.size());
    CHECK(mesh.rank_count() == static_cast<int64_t>(ranks.size()));
  }
}

TEST_CASE("meshes over the same ranks have a common refinement") {
  StringTable names;
  Mesh dense = finished(names, {{"dp", 8}, {"cp", 2}, {"tp", 4}});
  Mesh expert = finished(names, {{"edp", 4}, {"ep", 8}, {"etp", 2}});
  std::optional<Layout> both = common_refinement(dense, expert);
  CHECK(both == std::optional<Layout>(Layout{{4, 16}, {2, 8}, {2, 4}, {2, 2}, {2, 1}}));
  CHECK(common_refinement(expert, dense) == both);

  Mesh other_ranks = finished(names, {{"a", 32}});
  Mesh cut = finished(names, {{"a", 6}, {"b", 4}});
  Mesh by_four = finished(names, {{"a", 4}, {"b", 6}});
  Mesh moved = dense;
  moved.offset = 64;
  CHECK_FALSE(common_refinement(dense, other_ranks));
  CHECK_FALSE(common_refinement(cut, by_four));
  CHECK_FALSE(common_refinement(dense, moved));
  CHECK(common_refinement(other_ranks, finished(names, {{"x", 1}, {"y", 32}})) ==
        std::optional<Layout>(Layout{{32, 1}}));
}

TEST_CASE("a refinement of random meshes covers the ranks of both and their axes") {
  std::mt19937 random(99);
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    StringTable names;
    Mesh a = random_mesh(names, random), b = random_mesh(names, random);
    std::optional<Layout> both = common_refinement(a, b);
    CHECK(both == common_refinement(b, a));
    if (!both)
      continue;
    ++found;
    Mesh pieces;
    pieces.name = names.add("pieces");
    for (Atom atom : *both)
      pieces.axes.push_back(layout_axis(names, std::to_string(atom.stride).c_str(), {atom}));
    REQUIRE(finish(pieces, names) == "");
    std::set<int64_t> covered;
    for (int64_t rank : all_ranks(pieces))
      covered.insert(rank);
    for (const Mesh *mesh : {&a, &b}) {
      Ranks ranks = all_ranks(*mesh);
      CHECK(std::set<int64_t>(ranks.begin(), ranks.end()) == covered);
      for (const Axis &axis : mesh->axes)
        CHECK(axes_of_layout(pieces, axis.layout));
    }
  }
  CHECK(found > 50);
}

TEST_CASE("finish derives strides, pieces and typed axes") {
  StringTable names;
  Mesh mesh = mesh_of(names, {{"dp", 4}, {"one", 1}, {"cp", 2}, {"tp", 2}});
  mesh.axes.push_back(flattened_axis(names, "dp_cp", {0, 2}));
  mesh.axes.push_back(flattened_axis(names, "all", {4, 3}));
  mesh.axes.push_back(layout_axis(names, "tp_dp", {{2, 1}, {2, 8}, {2, 4}}));
  REQUIRE(finish(mesh, names) == "");
  CHECK(mesh[AxisId{0}].layout == Layout{{4, 4}});
  CHECK(mesh[AxisId{4}].layout == Layout{{8, 2}});
  CHECK(mesh[AxisId{5}].layout == Layout{{16, 1}});
  CHECK(mesh[AxisId{5}].pieces == llvm::SmallVector<AxisId, 2>{{0}, {2}, {3}});
  CHECK(mesh[AxisId{6}].pieces == llvm::SmallVector<AxisId, 2>{{3}, {0}});
  CHECK(mesh[AxisId{6}].layout == Layout{{2, 1}, {2, 8}, {2, 4}});
  CHECK(mesh.typed_axes() == (AxisSet(AxisId{0}) | AxisId{2} | AxisId{3}));
  CHECK(mesh.rank_count() == 16);
  CHECK(finish(mesh, names) == ""); // nothing is left to do
}

TEST_CASE("an explicit layout without axes behind it stands for itself") {
  StringTable names;
  Mesh mesh = mesh_of(names, {{"tp", 2, 2}});
  mesh.axes.push_back(layout_axis(names, "dp", {{2, 4}, {2, 1}}));
  REQUIRE(finish(mesh, names) == "");
  CHECK_FALSE(mesh[AxisId{1}].flattened);
  CHECK(mesh.typed_axes() == (AxisSet(AxisId{0}) | AxisId{1}));
  CHECK(indices(axes_of_layout(mesh, Layout{{2, 4}, {2, 1}})) == std::vector<int>{1});
  CHECK(indices(axes_of_layout(mesh, Layout{{2, 1}})) == std::vector<int>{-1});
}

TEST_CASE("finish says what is wrong") {
  StringTable names;
  auto wrong = [&](std::vector<AxisRow> rows, std::vector<Axis> more = {}) {
    Mesh mesh = mesh_of(names, std::move(rows));
    for (Axis &axis : more)
      mesh.axes.push_back(std::move(axis));
    return finish(mesh, names);
  };
  CHECK(wrong({{"dp", 4, 2}, {"tp", 4, 1}}) ==
        "axes `tp` (4:1) and `dp` (4:2) of mesh `m` overlap: a stride must exceed what smaller "
        "strides reach");
  CHECK(wrong({{"dp", 4}, {"dp", 2}}) == "axis `dp` stands twice in mesh `m`");
  CHECK(wrong({{"dp", 0}}) == "axis `dp` has size 0");
  CHECK(wrong({{"dp", 2, -1}}) == "axis `dp` has stride -1");
  CHECK(wrong({{"a", 1 << 30}, {"b", 1 << 30}}) == "mesh `m` has more than 2^53 ranks");
  CHECK(wrong({{"a", int64_t(1) << 53, int64_t(1) << 53}}) == "mesh `m` has ranks beyond 2^53");
  CHECK(wrong({{"a", 2}}, {flattened_axis(names, "f", {1})}) ==
        "flattened axis `f` contains itself");
  CHECK(wrong({{"a", 2}}, {flattened_axis(names, "f", {0, 0})}) ==
        "flattened axis `f` contains `a` twice");
  std::vector<AxisRow> many;
  std::vector<std::string> texts;
  for (int i = 0; i < 17; ++i)
    texts.push_back("x" + std::to_string(i));
  for (const std::string &text : texts)
    many.push_back({text.c_str(), 1});
  CHECK(wrong(many) == "mesh `m` has 17 axes, and the limit is 16");
}

TEST_CASE("a mesh of millions of ranks costs no more than a small one") {
  StringTable names;
  Mesh mesh = finished(names, {{"dp", 1 << 20}, {"cp", 1 << 12}, {"tp", 1 << 20}});
  AxisId order[] = {{2}, {0}, {1}};
  CHECK(indices(axes_of_layout(mesh, layout_of_axes(mesh, order))) == std::vector<int>{2, 0, 1});
  CHECK(common_refinement(mesh, mesh)->size() == 3);
}
