// Each step is one op on values that are there. One in twenty is drawn blindly: it is mostly
// refused.
#include "tests/soundness/grow.h"

#include "ir/support/arrays.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace spmd::soundness {

namespace {

bool pends(const Want &want) {
  return llvm::any_of(want.axes, [](const Want::Axis &axis) { return axis.kind == 'P'; });
}

void drop_dim(Want &want, unsigned dim) {
  want.local.erase(want.local.begin() + dim);
  want.global.erase(want.global.begin() + dim);
  want.cuts.erase(want.cuts.begin() + dim);
  for (Want::Axis &axis : want.axes)
    axis.dim -= axis.kind == 'S' && axis.dim > dim;
}

} // namespace

std::string Grower::add(std::string text, Want want) {
  std::string name = fmt::format("%v{}", values.size());
  lines += fmt::format("  {} = {}\n", name, text);
  values.push_back({name, std::move(want)});
  return name;
}

void Grower::grow(unsigned statements) {
  for (unsigned i = 0; i < statements; ++i)
    step();
}

void Grower::step() {
  const Local x = values[std::max(random_.below(values.size()), random_.below(values.size()))];
  switch (random_.below(8)) {
  case 0:
    return pointwise(x);
  case 1:
    return reduce(x);
  case 2:
    return softmax(x);
  case 3:
  case 4:
    return move(x);
  case 5:
  case 6:
    return product(x);
  case 7:
    return pair(x);
  }
}

void Grower::pointwise(const Local &x) {
  static constexpr const char *kCurved[] = {"gelu", "tanh", "square", "relu", "sigmoid"};
  bool linear = pends(x.want) ? !random_.chance(5) : random_.chance(30);
  add(linear ? fmt::format(fmt::runtime(random_.chance(50) ? "neg {}" : "mul {}, 0.5"), x.name)
             : fmt::format("{} {}", random_.of(kCurved), x.name),
      x.want);
}

void Grower::reduce(const Local &x) {
  if (x.want.local.empty())
    return;
  unsigned dim = random_.below(x.want.local.size());
  Want want = x.want;
  llvm::SmallVector<std::string, 2> partial;
  for (unsigned a = 0; a < want.axes.size(); ++a) {
    Want::Axis &axis = want.axes[a];
    bool summed = axis.kind == 'S' && axis.dim == dim;
    if (summed || (axis.kind == 'V' && random_.chance(30))) {
      axis = {'P', 0};
      partial.push_back(axes_.names[a]);
    }
  }
  drop_dim(want, dim);
  std::string words =
      partial.empty() || random_.chance(5) ? "" : fmt::format(", partial = {}", axes_text(partial));
  add(fmt::format("{} {} {{ dim = [{}]{} }}", random_.chance(20) ? "mean" : "sum", x.name, dim,
                  words),
      want);
}

// Along a dimension that is whole, mostly: that one that is cut is refused is a test, too.
void Grower::softmax(const Local &x) {
  llvm::SmallVector<unsigned, 4> whole;
  for (unsigned d = 0; d < x.want.cuts.size(); ++d)
    if (x.want.cuts[d].empty() || random_.chance(10))
      whole.push_back(d);
  if (whole.empty() || (pends(x.want) && !random_.chance(5)))
    return;
  static constexpr const char *kOps[] = {"softmax", "log_softmax", "cumsum"};
  add(fmt::format("{} {} {{ dim = {} }}", random_.of(kOps), x.name, random_.of(whole)), x.want);
}

void Grower::move(const Local &x) {
  unsigned a = random_.below(x.want.axes.size());
  Want want = x.want;
  Want::Axis &axis = want.axes[a];
  size_t rank = want.local.size();
  bool blind = random_.chance(5);
  static constexpr char kAny[] = {'R', 'I', 'P', 'S', 'V'};
  char from = blind ? random_.of(kAny) : axis.kind;
  unsigned cut = axis.dim, to_dim = rank ? random_.below(rank) : 0;
  const char *name = nullptr;
  char to = 'R';
  auto draw = [&](std::initializer_list<std::pair<const char *, char>> rows) {
    auto at = rows.begin() + random_.below(rows.size());
    name = at->first;
    to = at->second;
  };
  if (from == 'P')
    draw({{"all_reduce", 'R'}, {"all_reduce", 'I'}, {"reduce_scatter", is_local(a) ? 'V' : 'S'}});
  else if (from == 'S')
    draw({{"all_gather", 'R'}, {"all_gather", 'I'}, {"all_to_all", 'S'}});
  else if (from == 'R' || from == 'D')
    draw({{"convert", 'P'}, {"convert", is_local(a) ? 'V' : 'S'}, {"convert", 'I'}});
  else if (from == 'I')
    draw({{"convert", 'R'}, {"convert", is_local(a) ? 'V' : 'S'}, {"convert", 'P'}});
  else
    draw({{"reinterpret", 'P'}, {"all_gather", 'R'}, {"all_gather", 'I'}});
  if ((to == 'S' && rank == 0) || (from == 'D' && !blind))
    return;
  auto word = [](char kind, unsigned dim) {
    return kind == 'S' ? fmt::format("S({})", dim) : std::string(1, kind);
  };
  std::string text = fmt::format("{} {} {{ axis = {}, src = {}, dst = {} }}", name, x.name,
                                 axes_.names[a], word(from, cut), word(to, to_dim));
  // What becomes of the extents.
  auto n = axes_.sizes[a];
  if (axis.kind == 'S') {
    ir::erase_value(want.cuts[cut], a);
    want.local[cut] = std::min(want.local[cut] * n, want.global[cut]);
  }
  if (to == 'S') {
    if (want.local[to_dim] % n != 0)
      return;
    want.local[to_dim] /= n;
    want.cuts[to_dim].push_back(a);
  }
  bool stacks = axis.kind == 'V' && name != std::string_view("reinterpret");
  bool unbinds = to == 'V';
  // A dimension that goes to the ranks is cut by no other axis.
  if (unbinds && (rank == 0 || want.local[0] != n || !want.cuts[0].empty()))
    return;
  if (stacks) {
    want.local.insert(want.local.begin(), n);
    want.global.insert(want.global.begin(), n);
    want.cuts.insert(want.cuts.begin(), llvm::SmallVector<unsigned, 2>());
    for (Want::Axis &other : want.axes)
      other.dim += other.kind == 'S';
  }
  axis = {to, to == 'S' ? to_dim : 0};
  if (unbinds)
    drop_dim(want, 0);
  add(text, want);
}

void Grower::pair(const Local &x) {
  llvm::SmallVector<const Local *, 8> others;
  for (const Local &each : values)
    if (same(each.want, x.want))
      others.push_back(&each);
  const Local &y = *random_.of(others);
  static constexpr const char *kOps[] = {"add", "sub", "mul", "maximum"};
  const char *op = pends(x.want) && !random_.chance(5) ? kOps[random_.below(2)] : random_.of(kOps);
  add(fmt::format("{} {}, {}", op, x.name, y.name), x.want);
}

void Grower::product(const Local &x) {
  if (x.want.local.size() != 2)
    return pair(x);
  llvm::SmallVector<Local, 8> others;
  for (const Local &each : values)
    if (each.want.local.size() == 2 && each.want.local[0] == x.want.local[1] &&
        each.want.cuts[0] == x.want.cuts[1])
      others.push_back(each);
  if (others.empty())
    return pair(x);
  const Local &y = random_.of(others);
  Want want = x.want;
  want.local[1] = y.want.local[1];
  want.global[1] = y.want.global[1];
  want.cuts[1] = y.want.cuts[1];
  llvm::SmallVector<std::string, 2> partial;
  for (unsigned a = 0; a < want.axes.size(); ++a) {
    const Want::Axis p = x.want.axes[a], q = y.want.axes[a];
    Want::Axis &made = want.axes[a];
    if (p.kind == 'S' && p.dim == 1) {
      made = {'P', 0};
      partial.push_back(axes_.names[a]);
    } else if (p.kind == 'S') {
      made = {'S', 0};
    } else if (q.kind == 'S' && q.dim == 1) {
      made = {'S', 1};
    } else {
      made = {p.kind == 'R' || p.kind == 'D' ? q.kind : p.kind, 0};
      if (made.kind == 'V' && random_.chance(40)) {
        made.kind = 'P';
        partial.push_back(axes_.names[a]);
      }
    }
  }
  std::string words = partial.empty() ? "" : fmt::format(" {{ partial = {} }}", axes_text(partial));
  add(fmt::format("matmul {}, {}{}", x.name, y.name, words), want);
}

std::string Grower::like(const Want &want, const std::string &first) {
  llvm::SmallVector<std::string, 8> names;
  for (const Local &each : values)
    if (same(each.want, want))
      names.push_back(each.name);
  if (names.empty())
    return first;
  // What was made last, most often joined with another one.
  if (random_.chance(25))
    return names.back();
  std::string other = random_.of(names);
  const char *op = pends(want) || random_.chance(60) ? "add" : "mul";
  return add(fmt::format("{} {}, {}", op, names.back(), other), want);
}

} // namespace spmd::soundness
