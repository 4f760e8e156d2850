// Calls and local regions.
#include "tests/soundness/generator.h"

#include <fmt/format.h>

namespace spmd::soundness {

bool Generator::call() {
  std::optional<unsigned> id = pick();
  if (!id)
    return false;
  Seen seen = see(*id);
  std::string type = "f32" + list_of(seen.want.local);
  std::string name = fmt::format("@f{}", draft_.functions.size());
  Statement statement;
  statement.op = "call";
  statement.operands = {Operand::value(*id)};
  statement.results = {draft_.fresh()};
  statement.set("body", name);
  std::string body;
  unsigned form = random_.below(4);
  if (form < 2) {
    unsigned other = provide(seen.want);
    if (other == ~0u)
      return false;
    statement.operands.push_back(Operand::value(other));
    body =
        fmt::format("func {}(%x: {}, %y: {}) {{\n  %z = {} %x, %y\n  %u = {} %z\n  return %u\n}}\n",
                    name, type, type, form ? "add" : "mul", random_.chance(50) ? "neg" : "gelu");
  } else if (form == 2) {
    body = fmt::format("func {}(%x: {}) {{\n  %z = all_reduce %x {{ axis = {}, src = P, dst = {} "
                       "}}\n  return %z\n}}\n",
                       name, type, random_.of(axes_), random_.chance(50) ? "R" : "I");
  } else {
    body = fmt::format("func {}(%x: {}) {{\n  %z = convert %x {{ axis = {}, src = R, dst = P }}\n"
                       "  %u = add %z, %z\n  return %u\n}}\n",
                       name, type, random_.of(axes_));
  }
  draft_.functions.push_back(body);
  if (keep(statement))
    return random_.chance(40) ? (statement.results = {draft_.fresh()}, keep(statement), true)
                              : true;
  draft_.functions.pop_back();
  return false;
}

// Some statements in a local region, and out of it again what has a dimension to be joined along.
void Generator::region() {
  unsigned a = random_.below(axes_.size());
  size_t before = live_.size();
  region_ = fmt::format("local ({})", axes_[a]);
  for (unsigned i = 0; i < 5; ++i)
    extend();
  region_.clear();
  llvm::SmallVector<unsigned, 8> made(live_.begin() + static_cast<ptrdiff_t>(before), live_.end());
  for (unsigned id : made) {
    if (!is_known(id))
      continue;
    Seen seen = see(id);
    if (seen.want.axes[a].kind != 'V' || seen.want.local.empty())
      continue;
    Statement statement;
    statement.op = "from_local";
    statement.operands = {Operand::value(id)};
    statement.set("type", fmt::format("S({})@{}", random_.below(seen.want.local.size()), axes_[a]));
    statement.results = {draft_.fresh()};
    keep(std::move(statement));
  }
}

} // namespace spmd::soundness
