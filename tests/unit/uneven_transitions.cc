// Every transition between every two ends, on dimensions that do not divide: it has types, runs by
// the rule for uneven blocks, and so does its backward.
#include "tests/unit/backward_run.h"
#include "tests/unit/catch.h"

#include "rules/ops/registry.h"
#include "rules/transitions/transition.h"

#include <fmt/format.h>

#include <set>

using namespace spmd;
using namespace spmd::runtime;

namespace {

using ir::Kind;

constexpr char kNames[] = "ab";

// What a tensor of two dimensions is on two axes: per dimension the axes that cut it, outermost
// first; on the others a kind.
struct Layout {
  std::string cuts[2];
  Kind kinds[2] = {Kind::Replicate, Kind::Replicate};

  bool is_cut(char axis) const { return (cuts[0] + cuts[1]).find(axis) != std::string::npos; }
};

struct Lattice {
  int64_t sizes[2], extents[2];

  int64_t size(char axis) const { return sizes[axis - kNames[0]]; }
  // Of the first rank.
  int64_t block(size_t dim, const std::string &axes) const {
    int64_t left = extents[dim];
    for (char axis : axes)
      left = (left + size(axis) - 1) / size(axis);
    return left;
  }
  std::string mesh() const {
    return fmt::format("mesh m {{ a = {}, b = {} }}\n", sizes[0], sizes[1]);
  }
  std::string type(const Layout &layout) const {
    std::string dims, kinds;
    for (size_t d = 0; d < 2; ++d) {
      std::string axes;
      for (char axis : layout.cuts[d])
        axes += fmt::format("{}{}", axes.empty() ? "" : ",", axis);
      dims += fmt::format("{}{}{}", d ? ", " : "", block(d, layout.cuts[d]),
                          axes.size() > 1    ? "@(" + axes + ")"
                          : axes.size() == 1 ? "@" + axes
                                             : "");
    }
    for (size_t i = 0; i < 2; ++i)
      if (!layout.is_cut(kNames[i]))
        kinds += fmt::format(" {}@{}", ir::info(layout.kinds[i]).word, kNames[i]);
    return fmt::format("f32[{}] of [{}, {}]{}", dims, extents[0], extents[1], kinds);
  }
};
constexpr Lattice kGrids[] = {{{2, 2}, {7, 5}}, {{3, 2}, {4, 7}}, {{2, 3}, {5, 8}}};

// From a value to a loss: what is cut becomes addends of a sum, and so does what is the same on all
// ranks.
std::string loss_of(const Layout &layout, const std::string &value) {
  std::string text, at = value, partial;
  Layout left = layout;
  for (size_t i = 0; i < 2; ++i)
    if (!layout.is_cut(kNames[i]) && layout.kinds[i] == Kind::Partial) {
      text += fmt::format("%whole{} = all_reduce {} {{ axis = {}, src = P, dst = R }}\n", i, at,
                          kNames[i]);
      at = fmt::format("%whole{}", i);
      left.kinds[i] = Kind::Replicate;
    }
  for (char axis : {'a', 'b'})
    if (left.is_cut(axis))
      partial += fmt::format("{}{}", partial.empty() ? "" : ", ", axis);
  text += fmt::format("%square = mul {}, {}\n%sum = sum %square {{ partial = ({}) }}\n", at, at,
                      partial);
  if (partial.empty())
    text = text.substr(0, text.rfind(" {")) + "\n";
  at = "%sum";
  std::string kinds;
  for (size_t i = 0; i < 2; ++i) {
    bool same = !left.is_cut(kNames[i]);
    if (same && left.kinds[i] != Kind::Invariant) {
      text += fmt::format("%addends{} = convert {} {{ axis = {}, src = R, dst = P }}\n", i, at,
                          kNames[i]);
      at = fmt::format("%addends{}", i);
    }
    kinds += fmt::format(" {}@{}", same && left.kinds[i] == Kind::Invariant ? "I" : "P", kNames[i]);
  }
  return text + fmt::format("output loss {}:{}\n", at, kinds);
}

std::string word_of(Kind kind, int dim) {
  return dim < 0 ? std::string(ir::info(kind).word) : fmt::format("S({})", dim);
}

// The ends of a row: dimensions where it is cut; -1: it has no dimension.
std::vector<int> ends(Kind kind) {
  return kind == Kind::Varying ? std::vector<int>{0, 1} : std::vector<int>{-1};
}

struct Counts {
  size_t programs = 0, gradients = 0;
};

void check_runs(const std::string &text, Counts &counts) {
  INFO(text);
  RunReport report = run_with_backward(text);
  CHECK_FALSE(report.refuted());
  CHECK(upheld_gradients(report) >= 1);
  CHECK(report.undecided.empty());
  ++counts.programs;
  counts.gradients += upheld_gradients(report);
}

// `row` on axis b, of a tensor that axis a cuts as `outer` says.
void check_row(const Lattice &grid, const rules::Transition &row, int from, int to, int outer,
               Counts &counts) {
  Layout before;
  if (outer >= 0)
    before.cuts[outer] = "a";
  Layout after = before;
  if (from >= 0)
    before.cuts[from] += "b";
  if (to >= 0)
    after.cuts[to] += "b";
  before.kinds[1] = row.src, after.kinds[1] = row.dst;
  Layout declared = before;
  std::string make, value = "%x";
  if (row.src == Kind::Partial) { // addends are made of what is whole
    declared.kinds[1] = Kind::Replicate;
    make = "%p = convert %x { axis = b, src = R, dst = P }\n";
    value = "%p";
  }
  std::string text = grid.mesh() + "%x = param " + grid.type(declared) + "\n" + make +
                     fmt::format("%y = {} {} {{ axis = b, src = {}, dst = {}, expert = true }}\n",
                                 row.name(), value, word_of(row.src, from), word_of(row.dst, to)) +
                     loss_of(after, "%y");
  check_runs(text, counts);
}

} // namespace

TEST_CASE("uneven blocks: every transition runs, and its backward") {
  // Of what these do with the blocks of one tensor nobody makes use: they are for lists.
  const std::set<std::string_view> of_lists = {"broadcast", "reduce", "collective_permute",
                                               "reinterpret"};
  Counts counts;
  for (const Lattice &grid : kGrids)
    for (const rules::Transition &row : rules::transitions()) {
      bool has_owner = row.src == Kind::Reduced || row.dst == Kind::Reduced;
      if (of_lists.count(row.name()) || row.composed || has_owner)
        continue;
      for (int from : ends(row.src))
        for (int to : ends(row.dst))
          for (int outer : {-1, 0, 1})
            check_row(grid, row, from, to, outer, counts);
    }
  CHECK(counts.programs > 100);
  CHECK(counts.gradients >= counts.programs);
}

TEST_CASE("uneven blocks: redistributions between all specs run, and their backward") {
  std::vector<Layout> specs;
  for (const char *first : {"", "a", "b", "ab", "ba"})
    for (const char *second : {"", "a", "b", "ab", "ba"}) {
      Layout made{{first, second}};
      std::string all = made.cuts[0] + made.cuts[1];
      if (std::set<char>(all.begin(), all.end()).size() == all.size())
        specs.push_back(made);
    }
  Counts counts;
  for (const Lattice &grid : kGrids)
    for (const Layout &from : specs)
      for (const Layout &to : specs)
        check_runs(grid.mesh() + "%x = param " + grid.type(from) +
                       "\n%y = redistribute %x { to = " + grid.type(to) + " }\n" +
                       loss_of(to, "%y"),
                   counts);
  CHECK(counts.programs == std::size(kGrids) * specs.size() * specs.size());
}
