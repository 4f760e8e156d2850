// Redistributions to whole types, and reorders.
#include "tests/soundness/generator.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace spmd::soundness {

bool Generator::redistribution(const Seen &seen) {
  Want want = seen.want;
  size_t rank = want.global.size();
  want.local = want.global;
  want.cuts.assign(rank, {});
  llvm::SmallVector<unsigned, 4> order;
  for (unsigned a = 0; a < axes_.size(); ++a)
    order.insert(order.begin() + random_.below(a + 1), a);
  for (unsigned a : order) {
    Want::Axis &axis = want.axes[a];
    if (axis.kind == 'V') // lists stay
      continue;
    static constexpr char kKinds[] = {'S', 'S', 'S', 'S', 'R', 'R', 'I', 'P', 'D'};
    axis = {random_.of(kKinds), 0};
    if (axis.kind != 'S')
      continue;
    axis.dim = rank ? random_.below(rank) : 0;
    int64_t *extent = rank ? &want.local[axis.dim] : nullptr;
    bool even = extent && *extent % sizes_[a] == 0;
    if (!even && !(uneven_ && extent && *extent > sizes_[a])) {
      axis.kind = 'R';
      continue;
    }
    *extent = (*extent + sizes_[a] - 1) / sizes_[a];
    want.cuts[axis.dim].push_back(a);
  }
  Statement statement;
  statement.op = "redistribute";
  statement.operands = {Operand::value(seen.id)};
  statement.set("to", print(want));
  statement.results = {draft_.fresh()};
  return keep(std::move(statement));
}

bool Generator::swap(const Seen &seen) {
  llvm::SmallVector<std::pair<unsigned, unsigned>, 3> pairs;
  for (unsigned a = 0; a < axes_.size(); ++a)
    for (unsigned b = a + 1; b < axes_.size(); ++b) {
      char one = seen.want.axes[a].kind, other = seen.want.axes[b].kind;
      bool moves = one != 'V' && one != 'P' && other != 'V' && other != 'P';
      if (sizes_[a] == sizes_[b] && moves && (one == 'S' || other == 'S'))
        pairs.push_back({a, b});
    }
  if (pairs.empty())
    return false;
  auto [a, b] = random_.of(pairs);
  auto word = [&](unsigned axis) -> std::string {
    const Want::Axis &at = seen.want.axes[axis];
    return at.kind == 'S'   ? fmt::format("S({})", at.dim)
           : at.kind == 'D' ? "Reduced"
                            : std::string(1, at.kind);
  };
  // The outer one of a dimension afterwards is named first.
  const Want::Axis &one = seen.want.axes[a], &other = seen.want.axes[b];
  if (one.kind == 'S' && other.kind == 'S' && one.dim == other.dim) {
    const auto &cuts = seen.want.cuts[one.dim];
    if (llvm::find(cuts, a) < llvm::find(cuts, b))
      std::swap(a, b);
  }
  Statement statement;
  statement.op = "reorder";
  statement.operands = {Operand::value(seen.id)};
  statement.set("axis", fmt::format("({}, {})", axes_[a], axes_[b]));
  statement.set("src", fmt::format("[{}, {}]", word(a), word(b)));
  statement.set("dst", fmt::format("[{}, {}]", word(b), word(a)));
  statement.results = {draft_.fresh()};
  return keep(std::move(statement));
}

} // namespace spmd::soundness
