// Heads, inputs and the loop; the statements are in generator_*.cc.
#include "tests/soundness/generator.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace spmd::soundness {

using ir::Kind;

bool same(const Want &a, const Want &b) {
  auto same_axis = [](const Want::Axis &x, const Want::Axis &y) {
    return x.kind == y.kind && (x.kind != 'S' || x.dim == y.dim);
  };
  return a.dtype == b.dtype && a.local == b.local && a.global == b.global && a.cuts == b.cuts &&
         std::equal(a.axes.begin(), a.axes.end(), b.axes.begin(), b.axes.end(), same_axis);
}

Generator::Generator(uint64_t seed, Size size) : random_(seed), size_(size) { begin(); }

void Generator::begin() {
  struct Head {
    const char *text;
    std::initializer_list<const char *> axes;
    std::initializer_list<int64_t> sizes;
    std::initializer_list<const char *> flattened;
  };
  static const Head kHeads[] = {
      {"mesh m { tp = 2 }\n", {"tp"}, {2}, {}},
      {"mesh m { tp = 3 }\n", {"tp"}, {3}, {}},
      {"mesh m { dp = 2, tp = 2 }\n", {"dp", "tp"}, {2, 2}, {}},
      {"mesh m { dp = 2, tp = 3 }\n", {"dp", "tp"}, {2, 3}, {}},
      {"mesh m { dp = 3, tp = 2, all = (dp, tp) }\n", {"dp", "tp"}, {3, 2}, {"all"}},
      {"mesh m { dp = 2, cp = 2, tp = 2, dc = (dp, cp) }\n", {"dp", "cp", "tp"}, {2, 2, 2}, {"dc"}},
      {"mesh m { dp = 2, one = 1, tp = 2 }\n", {"dp", "tp"}, {2, 2}, {}},
      {"mesh e { ep = 4 }\nmesh m { dp = 2, tp = 2 }\n", {"dp", "tp"}, {2, 2}, {}},
      {"mesh m { dp = 2:1, tp = 2:2 }\n", {"dp", "tp"}, {2, 2}, {}},
  };
  const Head &head = random_.of(kHeads);
  local_ = random_.chance(25);
  uneven_ = !local_ && random_.chance(25);
  draft_.head = fmt::format("trace {{ mode = {} }}\n{}", local_ ? "local" : "global", head.text);
  for (const char *axis : head.axes)
    axes_.push_back(axis);
  sizes_.append(head.sizes.begin(), head.sizes.end());
  for (const char *axis : head.flattened)
    flattened_.push_back(axis);
  static constexpr int64_t kExtents[] = {2, 2, 3, 4, 4, 6};
  for (unsigned i = 0; i < 2; ++i)
    extents_.push_back(random_.of(kExtents));
  now_ = check(draft_);
}

namespace {

// Loops over all positions of all operands are run for every rank.
constexpr int64_t kMostElements = 72;

// What has no shape cannot be run.
bool is_small(const Checked &checked, const Statement &statement) {
  return llvm::all_of(statement.results, [&](unsigned id) {
    ir::ShapeId shape = checked.result.shapes[checked.ids[id].index];
    std::optional<int64_t> count =
        shape.valid() ? ir::element_count(checked.program.shapes[shape]) : std::nullopt;
    return count && *count <= kMostElements;
  });
}

} // namespace

bool Generator::keep(Statement statement) {
  statement.region = region_;
  draft_.statements.push_back(statement);
  for (unsigned tries = 0; tries < 3; ++tries) {
    std::unique_ptr<Checked> made = check(draft_);
    if (made->clean() && !is_small(*made, statement))
      break;
    if (made->clean()) {
      now_ = std::move(made);
      for (unsigned id : statement.results)
        live_.push_back(id);
      return true;
    }
    // What is only unsaid is said.
    Statement &last = draft_.statements.back();
    Owed owes = made->read ? owed(*made, last) : Owed();
    owes.expert &= !last.attr("expert") && random_.chance(40);
    if ((owes.partial.empty() || last.attr("partial")) && !owes.expert && owes.scales.empty())
      break;
    owes.state(last);
  }
  draft_.statements.pop_back();
  return false;
}

std::string Generator::print(const Want &want) const {
  std::string text(ir::info(want.dtype).word);
  text += "[";
  bool uneven = false;
  for (size_t d = 0; d < want.local.size(); ++d) {
    int64_t parts = 1;
    llvm::SmallVector<std::string, 2> names;
    for (unsigned axis : want.cuts[d]) {
      names.push_back(axes_[axis]);
      parts *= sizes_[axis];
    }
    uneven |= want.local[d] * parts != want.global[d];
    text += fmt::format("{}{}", d ? ", " : "", want.local[d]);
    if (names.size() == 1)
      text += "@" + names[0];
    else if (names.size() > 1)
      text += fmt::format("@({})", fmt::join(names, ", "));
  }
  text += "]";
  if (uneven)
    text += fmt::format(" of [{}]", fmt::join(want.global.begin(), want.global.end(), ", "));
  for (size_t a = 0; a < want.axes.size(); ++a)
    if (char kind = want.axes[a].kind; kind != 'S')
      text += fmt::format(" {}@{}", kind == 'D' ? "Reduced" : std::string(1, kind), axes_[a]);
  return text;
}

unsigned Generator::declare(const Want &want, std::string_view role) {
  Statement statement;
  statement.role = role;
  statement.type = print(want);
  statement.results = {draft_.fresh()};
  // Declarations stand first: they may be asked for within a region.
  draft_.statements.insert(draft_.statements.begin(), statement);
  std::unique_ptr<Checked> made = check(draft_);
  if (!made->clean()) {
    draft_.statements.erase(draft_.statements.begin());
    return ~0u;
  }
  now_ = std::move(made);
  live_.push_back(statement.results[0]);
  return statement.results[0];
}

Want Generator::random_want(unsigned rank) {
  Want want;
  want.cuts.resize(rank);
  for (unsigned d = 0; d < rank; ++d)
    want.global.push_back(count(want.global) > 24 ? 2 : random_.of(extents_));
  want.local = want.global;
  for (unsigned a = 0; a < axes_.size(); ++a) {
    static constexpr char kKinds[] = {'R', 'R', 'I', 'P', 'S', 'S', 'S', 'D', 'I'};
    static constexpr char kLocalKinds[] = {'R', 'R', 'I', 'V', 'V', 'V', 'P', 'D'};
    Want::Axis axis{local_ ? random_.of(kLocalKinds) : random_.of(kKinds), 0};
    if (axis.kind == 'S' && rank) {
      axis.dim = random_.below(rank);
      int64_t extent = want.local[axis.dim];
      bool first = want.cuts[axis.dim].empty();
      if (extent % sizes_[a] == 0 || (uneven_ && first && extent > sizes_[a])) {
        want.local[axis.dim] = (extent + sizes_[a] - 1) / sizes_[a];
        // Of two axes that share a dimension either is the outer one.
        auto &cuts = want.cuts[axis.dim];
        bool even = want.global[axis.dim] % sizes_[a] == 0 && first;
        cuts.insert(first || even || random_.chance(50) ? cuts.end() : cuts.begin(), a);
      } else {
        axis.kind = 'R';
      }
    } else if (axis.kind == 'S') {
      axis.kind = 'R';
    }
    want.axes.push_back(axis);
  }
  return want;
}

Generator::Seen Generator::see(unsigned id) const {
  const ir::Program &program = now_->program;
  ir::ValueId value = now_->ids[id];
  const ir::Type &type = program.types[now_->result.types[value.index]];
  const ir::Shape &shape = program.shapes[now_->result.shapes[value.index]];
  Seen seen;
  seen.id = id;
  seen.gradient_free = type.gradient_free();
  seen.want.dtype = shape.dtype;
  World world(program);
  Typed typed{now_->result.types[value.index], now_->result.shapes[value.index],
              now_->result.sizes[value.index]};
  Placement place(program, world, typed);
  seen.want.local = place.block(0).dims;
  seen.want.global = place.whole(0);
  seen.want.cuts.resize(shape.dims.size());
  const ir::Mesh &mesh = program.meshes[type.mesh()];
  for (unsigned a = 0; a < axes_.size(); ++a) {
    ir::AxisId axis;
    for (uint8_t i = 0; i < mesh.axes.size(); ++i)
      if (program.strings[mesh.axes[i].name] == axes_[a])
        axis = ir::AxisId{i};
    Want::Axis known;
    if (axis.valid()) {
      known.kind = type.replicated().contains(axis)          ? 'R'
                   : type.of(Kind::Invariant).contains(axis) ? 'I'
                   : type.of(Kind::Partial).contains(axis)   ? 'P'
                                                             : 'V';
      if (type.of(Kind::Reduced).contains(axis))
        known.kind = 'D';
      if (std::optional<unsigned> dim = type.dim(axis)) {
        known = {'S', *dim};
        auto &cuts = seen.want.cuts[*dim];
        cuts.insert(type.order(axis) == 0 ? cuts.begin() : cuts.end(), a);
      }
    }
    seen.want.axes.push_back(known);
  }
  return seen;
}

bool Generator::is_known(unsigned id) const {
  ir::ValueId value = now_->ids[id];
  if (!value.valid() || !now_->result.types[value.index].valid())
    return false;
  ir::ShapeId shape = now_->result.shapes[value.index];
  return shape.valid() && now_->program.shapes[shape].ranked;
}

std::optional<unsigned> Generator::pick(ir::DTypeClass form) {
  for (unsigned tries = 0; tries < 8 && !live_.empty(); ++tries) {
    // Later values are likelier: programs get deep.
    size_t at = std::max(random_.below(live_.size()), random_.below(live_.size()));
    if (!is_known(live_[at]))
      continue;
    ir::ShapeId shape = now_->result.shapes[now_->ids[live_[at]].index];
    if (ir::info(now_->program.shapes[shape].dtype).form == form)
      return live_[at];
  }
  return std::nullopt;
}

unsigned Generator::provide(const Want &want) {
  if (random_.chance(75))
    for (unsigned tries = 0; tries < live_.size(); ++tries) {
      unsigned id = live_[random_.below(live_.size())];
      if (!is_known(id))
        continue;
      if (same(see(id).want, want))
        return id;
    }
  bool floats = ir::info(want.dtype).form == ir::DTypeClass::Float;
  static constexpr std::string_view kRoles[] = {"param", "param", "input", "const"};
  return declare(want, floats ? random_.of(kRoles) : "input");
}

void Generator::declare_some() {
  for (unsigned i = 0; i < size_.inputs; ++i) {
    static constexpr std::string_view kRoles[] = {"param", "param", "input", "const"};
    declare(random_want(1 + random_.below(3)), random_.of(kRoles));
  }
}

std::string list_of(llvm::ArrayRef<int64_t> numbers) {
  return fmt::format("[{}]", fmt::join(numbers.begin(), numbers.end(), ", "));
}

bool Generator::extend() {
  unsigned kind = random_.below(100);
  if (kind < 45)
    return table_row();
  if (kind < 72)
    return transition();
  if (kind < 88)
    return view();
  if (kind < 92)
    return call();
  if (kind < 97)
    return control();
  return edge();
}

Draft Generator::run() {
  declare_some();
  unsigned made = 0;
  for (unsigned tries = 0; tries < 6 * size_.statements && made < size_.statements; ++tries) {
    if (!local_ && random_.chance(4))
      region();
    made += extend();
  }
  for (unsigned roots = random_.chance(15) ? 2 : 1; roots > 0; --roots) {
    llvm::SmallVector<unsigned, 32> before = live_;
    if (loss())
      after_backward();
    live_ = std::move(before);
  }
  return std::move(draft_);
}

} // namespace spmd::soundness
