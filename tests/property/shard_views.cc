// Views, joins and cuts of sharded tensors, element by element: which entry of which operand each
// entry of the result is.
#include "tests/property/shard_check.h"

#include "tests/unit/catch.h"

#include <algorithm>

namespace spmd::property {
namespace {

using Dims = std::vector<int>;

// Where an entry comes from; none: it is 0.
struct Source {
  size_t operand = 0;
  Dims at;
};
using ShapeOf = std::function<Dims(const std::vector<Dims> &operands)>;
using SourceOf =
    std::function<std::optional<Source>(const Dims &at, const std::vector<Dims> &operands)>;

size_t place(const Dims &at, const Dims &dims) {
  size_t found = 0;
  for (size_t d = 0; d < dims.size(); ++d)
    found = found * static_cast<size_t>(dims[d]) + static_cast<size_t>(at[d]);
  return found;
}

class MapMeaning : public OpMeaning {
public:
  MapMeaning(ShapeOf shape, SourceOf source)
      : shape_(std::move(shape)), source_(std::move(source)) {}

  std::optional<std::vector<Array>> run(const std::vector<Array> &operands) const override {
    std::vector<Dims> dims;
    for (const Array &operand : operands)
      dims.push_back(operand.dims);
    Array out;
    out.dims = shape_(dims);
    if (out.dims == kImpossible)
      return std::nullopt;
    Dims at(out.dims.size(), 0);
    for (size_t e = 0; e < element_count(out.dims); ++e) {
      std::optional<Source> source = source_(at, dims);
      out.data.push_back(
          source ? operands[source->operand].data[place(source->at, dims[source->operand])] : 0);
      for (size_t d = at.size(); d-- > 0;)
        if (++at[d] < out.dims[d])
          break;
        else
          at[d] = 0;
    }
    return std::vector<Array>{std::move(out)};
  }

  static inline const Dims kImpossible = {-1};

private:
  ShapeOf shape_;
  SourceOf source_;
};

struct MapCase {
  std::string op, attrs;
  std::vector<Dims> dims; // of the whole
  ShapeOf shape;
  SourceOf source;
  std::string operands = "%0";
};

MapCase permuted(std::string op, std::string attrs, Dims dims, std::vector<size_t> order) {
  return {std::move(op),
          std::move(attrs),
          {std::move(dims)},
          [order](const std::vector<Dims> &of) {
            Dims made;
            for (size_t d : order)
              made.push_back(of[0][d]);
            return made;
          },
          [order](const Dims &at, const std::vector<Dims> &) {
            Dims from(at.size());
            for (size_t d = 0; d < at.size(); ++d)
              from[order[d]] = at[d];
            return std::optional<Source>({0, from});
          }};
}

// Along one dimension: entry i of the result is entry `from(i, extent)`; negative: 0.
MapCase along(std::string op, std::string attrs, Dims dims, size_t dim,
              std::function<int(int)> extent, std::function<int(int, int)> from) {
  return {std::move(op),
          std::move(attrs),
          {std::move(dims)},
          [=](const std::vector<Dims> &of) {
            Dims made = of[0];
            made[dim] = extent(made[dim]);
            return made[dim] < 0 ? MapMeaning::kImpossible : made;
          },
          [=](Dims at, const std::vector<Dims> &of) -> std::optional<Source> {
            at[dim] = from(at[dim], of[0][dim]);
            if (at[dim] < 0)
              return std::nullopt;
            return Source{0, at};
          }};
}

// One operand: dimensions in another order, or another one along a dimension.
std::vector<MapCase> maps_of_one() {
  auto same = [](int extent) { return extent; };
  return {
      permuted("permute_dims", "dims = [2, 0, 1]", {4, 6, 2}, {2, 0, 1}),
      permuted("transpose", "dim0 = 0, dim1 = 2", {4, 6, 2}, {2, 1, 0}),
      permuted("swapaxes", "axis0 = 0, axis1 = 1", {4, 6, 2}, {1, 0, 2}),
      permuted("movedim", "source = 0, destination = 2", {4, 6, 2}, {1, 2, 0}),
      permuted("movedim", "source = [2, 0], destination = [0, 1]", {4, 6, 2}, {2, 0, 1}),
      permuted("t", "", {4, 6}, {1, 0}),
      permuted("mT", "", {2, 4, 6}, {0, 2, 1}),
      along("flip", "dims = [1]", {4, 6}, 1, same, [](int i, int n) { return n - 1 - i; }),
      along("roll", "dims = [1], shifts = 1", {4, 6}, 1, same,
            [](int i, int n) { return (i + n - 1) % n; }),
      along(
          "slice", "dim = 1, start = 0, end = 2", {4, 6}, 1, [](int n) { return std::min(n, 2); },
          [](int i, int) { return i; }),
      along(
          "slice", "dim = 0, start = 1, end = 4", {4, 6}, 0,
          [](int n) { return std::min(n, 4) - 1; }, [](int i, int) { return i + 1; }),
      along("slice", "dim = 0, start = 0", {4, 6}, 0, same, [](int i, int) { return i; }),
      along(
          "constant_pad", "pad = [1, 2, 0, 0], value = 0", {4, 6}, 1, [](int n) { return n + 3; },
          [](int i, int n) { return i > n ? -1 : i - 1; }),
      along(
          "repeat", "repeats = [1, 2]", {4, 6}, 1, [](int n) { return 2 * n; },
          [](int i, int n) { return i % n; }),
      along(
          "repeat_interleave", "dim = 1, repeats = 2", {4, 6}, 1, [](int n) { return 2 * n; },
          [](int i, int) { return i / 2; }),
  };
}

std::vector<MapCase> map_cases() {
  std::vector<MapCase> cases = maps_of_one();
  cases.push_back({"cat",
                   "dim = 1",
                   {{4, 6}, {4, 2}},
                   [](const std::vector<Dims> &of) {
                     return of[0][0] == of[1][0] ? Dims{of[0][0], of[0][1] + of[1][1]}
                                                 : MapMeaning::kImpossible;
                   },
                   [](const Dims &at, const std::vector<Dims> &of) -> std::optional<Source> {
                     int first = of[0][1];
                     return at[1] < first ? Source{0, at} : Source{1, {at[0], at[1] - first}};
                   },
                   "[%0, %1]"});
  cases.push_back({"stack",
                   "dim = 1",
                   {{4, 6}, {4, 6}},
                   [](const std::vector<Dims> &of) {
                     return of[0] == of[1] ? Dims{of[0][0], 2, of[0][1]} : MapMeaning::kImpossible;
                   },
                   [](const Dims &at, const std::vector<Dims> &) -> std::optional<Source> {
                     return Source{static_cast<size_t>(at[1]), {at[0], at[2]}};
                   },
                   "[%0, %1]"});
  cases.push_back({"select",
                   "dim = 0, index = 1",
                   {{4, 6}},
                   [](const std::vector<Dims> &of) {
                     return of[0][0] > 1 ? Dims{of[0][1]} : MapMeaning::kImpossible;
                   },
                   [](const Dims &at, const std::vector<Dims> &) -> std::optional<Source> {
                     return Source{0, {1, at[0]}};
                   }});
  cases.push_back(
      {"unfold",
       "dim = 0, size = 2, step = 1",
       {{4, 6}},
       [](const std::vector<Dims> &of) {
         return of[0][0] > 1 ? Dims{of[0][0] - 1, of[0][1], 2} : MapMeaning::kImpossible;
       },
       [](const Dims &at, const std::vector<Dims> &) -> std::optional<Source> {
         return Source{0, {at[0] + at[2], at[1]}};
       }});
  cases.push_back({"unsqueeze",
                   "dim = 1",
                   {{4, 6}},
                   [](const std::vector<Dims> &of) {
                     return Dims{of[0][0], 1, of[0][1]};
                   },
                   [](const Dims &at, const std::vector<Dims> &) -> std::optional<Source> {
                     return Source{0, {at[0], at[2]}};
                   }});
  cases.push_back(
      {"expand",
       "size = [3, -1, 5, -1]",
       {{4, 1, 6}},
       [](const std::vector<Dims> &of) {
         return of[0][1] == 1 ? Dims{3, of[0][0], 5, of[0][2]} : MapMeaning::kImpossible;
       },
       [](const Dims &at, const std::vector<Dims> &) -> std::optional<Source> {
         return Source{0, {at[1], 0, at[3]}};
       }});
  cases.push_back({"tril",
                   "",
                   {{2, 4, 4}},
                   [](const std::vector<Dims> &of) { return of[0]; },
                   [](const Dims &at, const std::vector<Dims> &) -> std::optional<Source> {
                     if (at[2] > at[1])
                       return std::nullopt;
                     return Source{0, at};
                   }});
  return cases;
}

void run_maps(ShardCheck &check) {
  for (const MapCase &each : map_cases()) {
    MapMeaning meaning(each.shape, each.source);
    OpCase made;
    made.name = made.op = each.op;
    made.operands = each.operands;
    made.meaning = &meaning;
    made.attrs = [&](const std::vector<Dims> &) { return each.attrs; };
    for (const Dims &dims : each.dims)
      made.tensors.push_back({dims});
    check.run(made, 300);
  }
}

std::string list(const Dims &dims) {
  std::string text;
  for (int extent : dims)
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

// Extents that have the same prime factors in nearly the same order, grouped anew.
Dims regrouped(const Dims &dims, std::mt19937 &random) {
  Dims primes, made = {1};
  for (int extent : dims)
    for (int p = 2; extent > 1; ++p)
      for (; extent % p == 0; extent /= p)
        primes.push_back(p);
  if (primes.size() > 1 && random() % 4 == 0)
    std::swap(primes[random() % primes.size()], primes[random() % primes.size()]);
  for (int p : primes) {
    if (random() % 2)
      made.push_back(1);
    made.back() *= p;
  }
  if (random() % 4 == 0)
    made.push_back(1);
  return made;
}

// A random reshape of a random tensor; false if there is none.
bool draw_view(OpCase &view, const MeshSizes &mesh, bool uneven, std::vector<Layout> &layouts,
               std::mt19937 &random) {
  static const Dims kEven = {1, 2, 3, 4, 6, 8, 12}, kUneven = {2, 3, 4, 5, 6, 7, 9, 10};
  Dims dims;
  for (size_t d = 0, rank = 1 + random() % 3; d < rank; ++d)
    dims.push_back((uneven ? kUneven : kEven)[random() % (uneven ? kUneven : kEven).size()]);
  std::vector<Layout> all = all_layouts(mesh.size(), dims.size());
  layouts = {all[random() % all.size()]};
  for (size_t d = 0; d < dims.size(); ++d)
    if (int count = block_count(layouts[0], mesh, d); uneven ? dims[d] < count : dims[d] % count)
      return false;
  Dims local = local_dims(dims, layouts[0], mesh);
  if (std::count(local.begin(), local.end(), 0))
    return false;
  view.tensors = {{dims}};
  view.operands = "%0";
  view.name = "reshape";
  std::string attrs;
  auto flattened = [](const Dims &of, size_t first, size_t last) {
    Dims made(of.begin(), of.begin() + static_cast<ptrdiff_t>(first));
    made.push_back(1);
    for (size_t d = first; d <= last; ++d)
      made.back() *= of[d];
    made.insert(made.end(), of.begin() + static_cast<ptrdiff_t>(last + 1), of.end());
    return made;
  };
  auto squeezed = [](Dims of, size_t dim) {
    if (of[dim] == 1)
      of.erase(of.begin() + static_cast<ptrdiff_t>(dim));
    return of;
  };
  size_t first = random() % local.size(), last = first + random() % (local.size() - first);
  switch (random() % 5) {
  case 0:
    view.op = "flatten";
    view.view = flattened(local, first, last);
    view.view_of_whole = flattened(dims, first, last);
    attrs = "start_dim = " + std::to_string(first) + ", end_dim = " + std::to_string(last);
    break;
  case 1: {
    Dims parts = regrouped({local[first]}, random);
    view.op = "unflatten";
    view.view = local;
    view.view->erase(view.view->begin() + static_cast<ptrdiff_t>(first));
    view.view->insert(view.view->begin() + static_cast<ptrdiff_t>(first), parts.begin(),
                      parts.end());
    attrs = "dim = " + std::to_string(first) + ", sizes = " + list(parts);
    break;
  }
  case 2:
    view.op = "squeeze";
    view.view = squeezed(local, first);
    view.view_of_whole = squeezed(dims, first);
    attrs = "dim = " + std::to_string(first);
    break;
  default:
    view.op = "reshape";
    view.view = regrouped(local, random);
    attrs = "shape = " + list(*view.view);
  }
  view.name = view.op;
  view.attrs = [attrs](const std::vector<Dims> &) { return attrs; };
  return true;
}

void run_views(ShardCheck &check, const MeshSizes &mesh, bool uneven, unsigned seed,
               bool declared = false) {
  std::mt19937 random(seed);
  for (unsigned i = 0; i < 4000; ++i) {
    OpCase view;
    std::vector<Layout> layouts;
    if (!draw_view(view, mesh, uneven, layouts, random))
      continue;
    if (declared) {
      std::vector<Layout> all = all_layouts(mesh.size(), view.view->size());
      view.declared = all[random() % all.size()];
    }
    check.run_one(view, layouts);
  }
}

constexpr NeedlessEntry kNeedless[] = {
    {"reshape", "unwhole-dimension", "what is merged and split again has no common part"},
};
constexpr NeedlessEntry kNeedlessUneven[] = {
    {"reshape", "shape-mismatch", "blocks that fit two dimensions: the program says on which"},
    {"unflatten", "shape-mismatch", "likewise"},
};
} // namespace

TEST_CASE("views, joins and cuts of sharded tensors move each element to its place") {
  ShardCheck pairs({2}, 1), grid({2, 2}, 2), uneven({2}, 3, true);
  run_maps(pairs);
  run_maps(grid);
  run_maps(uneven);
  check_needless({&pairs, &grid, &uneven}, {});
}

TEST_CASE("reshapes of sharded tensors keep the order of elements") {
  ShardCheck pairs({2}, 4), triples({3}, 5), grid({2, 2}, 6), uneven({2}, 7, true),
      grid_uneven({2, 2}, 8, true), wide({2, 3}, 12);
  run_views(pairs, {2}, false, 4);
  run_views(triples, {3}, false, 5);
  run_views(grid, {2, 2}, false, 6);
  run_views(uneven, {2}, true, 7);
  run_views(grid_uneven, {2, 2}, true, 8);
  run_views(wide, {2, 3}, false, 12);
  check_needless({&pairs, &triples, &grid, &uneven, &grid_uneven, &wide},
                 {kNeedless, kNeedlessUneven});
}

TEST_CASE("a declared type does not make a reshape of sharded tensors wrong") {
  ShardCheck pairs({2}, 9), grid({2, 2}, 10), wide({2, 3}, 11);
  run_views(pairs, {2}, false, 9, true);
  run_views(grid, {2, 2}, false, 10, true);
  run_views(wide, {2, 3}, false, 11, true);
  check_needless({&pairs, &grid, &wide}, {kNeedless});
}

} // namespace spmd::property
