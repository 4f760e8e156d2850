// Scans, branches, loops and local regions with claims. Bodies are grown from what enters them.
#include "ir/support/arrays.h"
#include "tests/soundness/grow.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace spmd::soundness {

namespace {

constexpr unsigned kRounds = 3;

// The stack of which the value is one element.
Want stack_of(Want each) {
  each.local.insert(each.local.begin(), kRounds);
  each.global.insert(each.global.begin(), kRounds);
  each.cuts.insert(each.cuts.begin(), llvm::SmallVector<unsigned, 2>());
  for (Want::Axis &axis : each.axes)
    axis.dim += axis.kind == 'S';
  return each;
}

} // namespace

// Parameters state their types, their extents or nothing.
std::string Generator::function(llvm::ArrayRef<std::pair<std::string, Want>> params,
                                const Grower &body, llvm::ArrayRef<std::string> results) {
  unsigned form = random_.below(3);
  std::vector<std::string> stated;
  for (const auto &[name, want] : params)
    stated.push_back(form == 0   ? name
                     : form == 1 ? fmt::format("{}: {}", name, print(want))
                                 : fmt::format("{}: {}{}", name, ir::info(want.dtype).word,
                                               list_of(want.local)));
  std::string name = fmt::format("@f{}", draft_.functions.size());
  draft_.functions.push_back(fmt::format("func {}({}) {{\n{}  return {}\n}}\n", name,
                                         fmt::join(stated, ", "), body.lines,
                                         fmt::join(results, ", ")));
  return name;
}

// Functions from the given one on go with the statement if it is refused.
bool Generator::keep_with(Statement statement, size_t functions) {
  if (keep(std::move(statement)))
    return true;
  draft_.functions.resize(functions);
  return false;
}

bool Generator::control() {
  if (!region_.empty())
    return false;
  unsigned form = random_.below(10);
  if (form < 3)
    return scan();
  if (form < 4)
    return layers();
  if (form < 6)
    return choice();
  if (form < 7)
    return loop();
  return mapped();
}

// A carry, a stack that is scanned, at times a constant; results are the carry and stacks.
bool Generator::scan() {
  std::optional<unsigned> id = pick();
  if (!id)
    return false;
  Want carry = see(*id).want;
  Want each = random_.chance(60) ? carry : random_want(random_.below(3));
  each.dtype = carry.dtype;
  Want rows = stack_of(each);
  bool over = random_.chance(85), constant = random_.chance(30);
  // Dimension 0 itself cut: there is no element for all ranks.
  for (unsigned a = 0; a < axes_.size(); ++a)
    if (!local_ && rows.axes[a].kind == 'R' && random_.chance(3)) {
      rows.axes[a] = {'S', 0};
      rows.global[0] *= sizes_[a];
      rows.cuts[0] = {a};
      break;
    }
  unsigned xs = over ? provide(rows) : 0, fixed = constant ? provide(carry) : 0;
  if (xs == ~0u || fixed == ~0u)
    return false;
  Grower body(random_, {axes_, sizes_, local_ ? ~0u : 0});
  std::vector<std::pair<std::string, Want>> params;
  if (constant)
    params.push_back({"%k", carry});
  params.push_back({"%c", carry});
  if (over)
    params.push_back({"%x", each});
  for (const auto &[name, want] : params)
    body.values.push_back({name, want});
  body.grow(1 + random_.below(4));
  std::vector<std::string> results = {body.like(carry, "%c")};
  for (unsigned more = random_.below(3); more > 0; --more)
    results.push_back(body.any().name);
  size_t before = draft_.functions.size();
  Statement statement;
  statement.op = "scan";
  if (constant)
    statement.operands.push_back(Operand::value(fixed));
  statement.operands.push_back(Operand::value(*id));
  if (over)
    statement.operands.push_back(Operand::value(xs));
  for (size_t i = 0; i < results.size(); ++i)
    statement.results.push_back(draft_.fresh());
  statement.set("carry", "1");
  if (constant)
    statement.set("consts", "1");
  if (!over)
    statement.set("length", std::to_string(kRounds));
  if (over && random_.chance(30))
    statement.set("reverse", "true");
  statement.set("body", function(params, body, results));
  return keep_with(std::move(statement), before);
}

// Layers of one model: each round multiplies by weights of its own, cut as a tensor parallel model
// cuts them.
bool Generator::layers() {
  if (local_)
    return false;
  unsigned a = random_.below(axes_.size());
  int64_t n = sizes_[a], width = 2;
  Want h;
  h.local = h.global = {random_.of(extents_), width};
  h.cuts.resize(2);
  h.axes.resize(axes_.size());
  for (unsigned b = 0; b < axes_.size(); ++b)
    if (b != a && random_.chance(50) && h.cuts[0].empty()) {
      h.axes[b] = {'S', 0};
      h.global[0] *= sizes_[b];
      h.cuts[0] = {b};
    }
  static constexpr char kKinds[] = {'R', 'R', 'I'};
  h.axes[a].kind = random_.of(kKinds);
  Want up, down;
  up.local = {kRounds, width, 1}, up.global = {kRounds, width, n};
  down.local = {kRounds, 1, width}, down.global = {kRounds, n, width};
  up.cuts.resize(3), down.cuts.resize(3);
  up.cuts[2] = down.cuts[1] = {a};
  up.axes.resize(axes_.size()), down.axes.resize(axes_.size());
  up.axes[a] = {'S', 2}, down.axes[a] = {'S', 1};
  unsigned state = provide(h), first = provide(up), second = provide(down);
  if (state == ~0u || first == ~0u || second == ~0u)
    return false;
  std::string axis = axes_[a];
  std::string lines, from = "%h";
  if (h.axes[a].kind == 'I') {
    lines = fmt::format("  %r = convert %h {{ axis = {}, src = I, dst = R }}\n", axis);
    from = "%r";
  }
  lines += fmt::format("  %y = matmul {}, %u\n  %a = {} %y\n  %p = matmul %a, %d {{ partial = {} "
                       "}}\n  %o = all_reduce %p {{ axis = {}, src = P, dst = {} }}\n",
                       from, random_.chance(50) ? "gelu" : "neg", axis, axis, h.axes[a].kind);
  bool residual = random_.chance(50);
  if (residual)
    lines += "  %n = add %h, %o\n";
  size_t before = draft_.functions.size();
  std::string name = fmt::format("@f{}", before);
  bool stacks = random_.chance(40);
  draft_.functions.push_back(fmt::format("func {}(%h, %u, %d) {{\n{}  return {}{}\n}}\n", name,
                                         lines, residual ? "%n" : "%o", stacks ? ", %y" : ""));
  Statement statement;
  statement.op = "scan";
  statement.operands = {Operand::value(state), Operand::value(first), Operand::value(second)};
  statement.results = {draft_.fresh()};
  if (stacks)
    statement.results.push_back(draft_.fresh());
  statement.set("carry", "1");
  statement.set("body", name);
  return keep_with(std::move(statement), before);
}

// Both branches give what the first operand is, or what the first of them makes.
bool Generator::choice() {
  std::optional<unsigned> id = pick();
  if (!id)
    return false;
  Want want = see(*id).want;
  unsigned other = provide(random_.chance(70) ? want : random_want(random_.below(3)));
  Want flag;
  flag.dtype = ir::DType::Bool;
  for (const Want::Axis &axis : want.axes)
    flag.axes.push_back({axis.kind == 'V' && random_.chance(50)   ? 'V'
                         : axis.kind == 'I' || random_.chance(30) ? 'I'
                                                                  : 'R',
                         0});
  if (local_ && random_.chance(20))
    flag.axes[random_.below(flag.axes.size())].kind = 'V';
  if (random_.chance(20))
    flag.dtype = ir::DType::F32;
  std::optional<unsigned> predicate;
  if (!local_ && random_.chance(25))
    predicate = member(random_.below(axes_.size()), flag.dtype);
  else if (other != ~0u)
    predicate = declare(flag, random_.chance(50) ? "input" : "const");
  if (other == ~0u || !predicate || *predicate == ~0u)
    return false;
  std::vector<std::pair<std::string, Want>> params = {{"%x", want}, {"%y", see(other).want}};
  size_t before = draft_.functions.size();
  llvm::SmallVector<std::string, 2> names;
  Want result = want;
  for (unsigned branch = 0; branch < 2; ++branch) {
    Grower body(random_, {axes_, sizes_, local_ ? ~0u : 0});
    for (const auto &[name, each] : params)
      body.values.push_back({name, each});
    body.grow(1 + random_.below(3));
    if (branch == 0 && random_.chance(40))
      result = body.any().want;
    names.push_back(function(params, body, {body.like(result, "%x")}));
  }
  Statement statement;
  statement.op = "cond";
  statement.operands = {Operand::value(*predicate), Operand::value(*id), Operand::value(other)};
  statement.results = {draft_.fresh()};
  statement.set("then", names[0]);
  statement.set("else", names[1]);
  return keep_with(std::move(statement), before);
}

// A number per rank along the axis, in a program that means whole tensors.
std::optional<unsigned> Generator::member(unsigned axis, ir::DType dtype) {
  Want want;
  want.dtype = dtype;
  want.local = {1}, want.global = {sizes_[axis]};
  want.cuts = {{axis}};
  want.axes.resize(axes_.size());
  want.axes[axis] = {'S', 0};
  unsigned id = provide(want);
  for (auto [op, key, value] : {std::tuple{"to_local", "", ""}, std::tuple{"select", "dim", "0"}}) {
    Statement statement;
    statement.op = op;
    statement.operands = {Operand::value(id)};
    if (*key)
      statement.attrs = {{key, value}, {"index", "0"}};
    statement.results = {draft_.fresh()};
    if (id == ~0u || !keep(statement))
      return std::nullopt;
    id = statement.results[0];
  }
  return id;
}

// `while`: a number decides whether to go on, and the body changes it.
bool Generator::loop() {
  std::optional<unsigned> id = pick();
  if (!id)
    return false;
  Want carry = see(*id).want, number;
  for (unsigned a = 0; a < axes_.size(); ++a) {
    static constexpr char kKinds[] = {'R', 'R', 'R', 'I', 'V'};
    char kind = random_.of(kKinds);
    number.axes.push_back({kind == 'V' && !local_ ? 'R' : kind, 0});
  }
  if (random_.chance(20))
    number.dtype = ir::DType::I64;
  std::optional<unsigned> each;
  if (!local_ && random_.chance(20))
    each = member(random_.below(axes_.size()), number.dtype);
  if (each)
    number = see(*each).want;
  unsigned count = each ? *each : provide(number),
           fixed = random_.chance(40) ? provide(carry) : *id;
  if (count == ~0u || fixed == ~0u)
    return false;
  bool constant = fixed != *id;
  std::vector<std::pair<std::string, Want>> params;
  if (constant)
    params.push_back({"%k", carry});
  params.push_back({"%n", number});
  params.push_back({"%c", carry});
  Grower asks(random_, {axes_, sizes_, local_ ? ~0u : 0});
  asks.lines = "  %q = lt %n, 2.0\n";
  size_t before = draft_.functions.size();
  Statement statement;
  statement.op = "while";
  if (constant)
    statement.operands.push_back(Operand::value(fixed));
  statement.operands.push_back(Operand::value(count));
  statement.operands.push_back(Operand::value(*id));
  statement.results = {draft_.fresh(), draft_.fresh()};
  if (constant)
    statement.set("consts", "1");
  statement.set("cond", function(params, asks, {"%q"}));
  Grower body(random_, {axes_, sizes_, local_ ? ~0u : 0});
  for (const auto &[name, want] : params)
    if (name != "%n")
      body.values.push_back({name, want});
  body.grow(1 + random_.below(3));
  std::string next = body.like(carry, "%c");
  body.lines += "  %m = add %n, 1.0\n";
  statement.set("body", function(params, body, {"%m", next}));
  return keep_with(std::move(statement), before);
}

// A local region over an axis or two, whose results are claimed: as they are, and at times not.
bool Generator::mapped() {
  std::optional<unsigned> id = pick();
  if (!id || local_)
    return false;
  llvm::SmallVector<unsigned, 2> over = {random_.below(axes_.size())};
  if (unsigned more = random_.below(axes_.size()); more != over[0] && random_.chance(30))
    over.push_back(more);
  unsigned mask = 0;
  llvm::SmallVector<std::string, 2> names;
  for (unsigned a : over) {
    mask |= 1u << a;
    names.push_back(axes_[a]);
  }
  llvm::SmallVector<unsigned, 2> operands = {*id};
  if (random_.chance(50))
    operands.push_back(provide(random_.chance(50) ? see(*id).want : random_want(random_.below(3))));
  if (operands.back() == ~0u)
    return false;
  Grower body(random_, {axes_, sizes_, mask});
  Statement statement;
  statement.op = "local_map";
  statement.over = axes_text(names);
  for (unsigned i = 0; i < operands.size(); ++i) {
    Want want = see(operands[i]).want;
    std::string stated;
    for (unsigned a : over) {
      Want::Axis &axis = want.axes[a];
      if (axis.kind == 'S') {
        ir::erase_value(want.cuts[axis.dim], a);
        stated += fmt::format(" S({})@{}", axis.dim, axes_[a]);
        want.global[axis.dim] = std::max(want.local[axis.dim], want.global[axis.dim] / sizes_[a]);
        axis = {'V', 0};
      } else {
        stated += fmt::format(" {}@{}", axis.kind == 'D' ? "Reduced" : std::string(1, axis.kind),
                              axes_[a]);
      }
    }
    statement.operands.push_back(Operand::value(operands[i]));
    statement.enters.push_back(random_.chance(50) ? stated : std::string());
    body.values.push_back({fmt::format("%p{}", i), want});
  }
  body.grow(1 + random_.below(4));
  std::vector<std::string> yields;
  for (unsigned results = random_.chance(25) ? 2 : 1; results > 0; --results) {
    const Grower::Local &value = random_.chance(70) ? body.values.back() : body.any();
    yields.push_back(value.name);
    statement.results.push_back(draft_.fresh());
    statement.claims.push_back(claim(value.want, mask));
  }
  statement.block = body.lines + fmt::format("  yield {}\n", fmt::join(yields, ", "));
  return keep(std::move(statement));
}

// What leaves a region: V joins along a dimension, or is taken for addends; at times a false word.
std::string Generator::claim(Want want, unsigned mask) {
  for (unsigned a = 0; a < want.axes.size(); ++a) {
    if (!(mask >> a & 1))
      continue;
    Want::Axis &axis = want.axes[a];
    static constexpr char kWrong[] = {'R', 'I', 'P', 'D', 'S'};
    if (random_.chance(6))
      axis.kind = random_.of(kWrong);
    else if (axis.kind == 'V')
      axis.kind = random_.chance(75) ? 'S' : random_.chance(60) ? 'P' : 'V';
    if (axis.kind != 'S')
      continue;
    if (want.local.empty()) {
      axis = {'P', 0};
      continue;
    }
    axis.dim = random_.below(want.local.size());
    want.cuts[axis.dim].push_back(a);
    want.global[axis.dim] *= sizes_[a];
  }
  // Another scale along its own axes is for the claim to say.
  std::string scale;
  for (unsigned a = 0; a < want.axes.size(); ++a)
    if (mask >> a & 1 && random_.chance(6))
      scale = (random_.chance(50) ? " scale " : " scale 1/") + axes_[a];
  return print(want) + scale;
}

} // namespace spmd::soundness
