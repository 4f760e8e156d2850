// What states a type or changes a scale, the loss and its gradients.
#include "tests/soundness/generator.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace spmd::soundness {

bool Generator::edge() {
  std::optional<unsigned> id = pick();
  if (!id)
    return false;
  Seen seen = see(*id);
  Statement statement;
  statement.operands = {Operand::value(*id)};
  statement.results = {draft_.fresh()};
  unsigned a = random_.below(axes_.size());
  switch (random_.below(5)) {
  case 0:
    statement.op = "scale";
    statement.set("by", random_.chance(50) ? axes_[a] : "1/" + axes_[a]);
    break;
  case 1:
    statement.op = "detach";
    break;
  case 2:
    statement.op = "to_local";
    break;
  case 3:
    statement.op = "assert_type";
    statement.set("axis", axes_[a]);
    statement.set("dst", seen.want.axes[a].kind == 'S' ? fmt::format("S({})", seen.want.axes[a].dim)
                                                       : std::string(1, seen.want.axes[a].kind));
    break;
  case 4:
    statement.op = "zeros_like";
    break;
  }
  return keep(std::move(statement));
}

// The sum of a few values, made P or I on every axis.
bool Generator::loss() {
  unsigned total = ~0u;
  auto op = [&](std::string_view name, std::vector<Operand> operands,
                std::vector<std::pair<std::string, std::string>> attrs) {
    Statement statement;
    statement.op = name;
    statement.operands = std::move(operands);
    statement.attrs = std::move(attrs);
    statement.results = {draft_.fresh()};
    unsigned id = statement.results[0];
    return keep(std::move(statement)) ? id : ~0u;
  };
  bool invariant = random_.chance(40);
  for (unsigned tries = 0; tries < 6; ++tries) {
    std::optional<unsigned> id = pick();
    if (!id || see(*id).gradient_free)
      continue;
    unsigned scalar = op("sum", {Operand::value(*id)}, {});
    for (unsigned a = 0; scalar != ~0u && a < axes_.size(); ++a) {
      char kind = see(scalar).want.axes[a].kind;
      std::string axis = axes_[a];
      auto step = [&](const char *name, const char *src, const char *dst) {
        if (scalar != ~0u)
          scalar = op(name, {Operand::value(scalar)}, {{"axis", axis}, {"src", src}, {"dst", dst}});
      };
      if (kind == 'I' && !invariant)
        step("convert", "I", "R"), kind = 'R';
      if (kind == 'V')
        step("reinterpret", "V", "P");
      else if (kind == 'R' || kind == 'D')
        step("convert", "R", "P");
      if (invariant && kind != 'I')
        step("all_reduce", "P", "I");
    }
    if (scalar == ~0u)
      continue;
    // Nonlinear in what was reduced, at times.
    if (invariant && random_.chance(40))
      if (unsigned curved = op("square", {Operand::value(scalar)}, {}); curved != ~0u)
        scalar = curved;
    unsigned sum =
        total == ~0u ? scalar : op("add", {Operand::value(total), Operand::value(scalar)}, {});
    total = sum == ~0u ? total : sum;
    if (random_.chance(40))
      break;
  }
  if (total == ~0u)
    return false;
  Statement backward;
  backward.op = "backward";
  backward.operands = {Operand::value(total)};
  return keep(backward);
}

void Generator::after_backward() {
  llvm::SmallVector<unsigned, 4> gradients;
  for (const Statement &statement : std::vector<Statement>(draft_.statements))
    if (statement.role == "param" && random_.chance(60)) {
      Statement grad;
      grad.op = "grad";
      grad.operands = {Operand::value(statement.results[0])};
      grad.results = {draft_.fresh()};
      if (keep(grad))
        gradients.push_back(grad.results[0]);
    }
  if (gradients.empty())
    return;
  live_.assign(gradients.begin(), gradients.end());
  for (unsigned i = 0; i < 4; ++i)
    transition();
  live_.assign(gradients.begin(), gradients.end());
  for (const Statement &statement : std::vector<Statement>(draft_.statements))
    if (statement.op == "grad" && llvm::is_contained(gradients, statement.results[0]) &&
        random_.chance(60))
      step(statement.operands[0].values[0], statement.results[0]);
}

// What is pending is reduced by instructions, or by the contract of the parameter; then the
// optimizer reads it, or the contract alone speaks of it.
void Generator::step(unsigned param, unsigned gradient) {
  llvm::SmallVector<std::string, 3> sync;
  for (unsigned a = 0; a < axes_.size(); ++a) {
    bool owed = see(gradient).want.axes[a].kind == 'P';
    bool average = random_.chance(20);
    if (owed ? random_.chance(40) : random_.chance(4)) {
      sync.push_back(fmt::format("{} = {}", axes_[a], average ? "avg" : "sum"));
    } else if (owed) {
      Statement reduce;
      reduce.op = "all_reduce";
      reduce.operands = {Operand::value(gradient)};
      reduce.attrs = {{"axis", axes_[a]}, {"src", "P"}, {"dst", random_.chance(70) ? "R" : "I"}};
      if (average)
        reduce.set("op", "avg");
      reduce.results = {draft_.fresh()};
      if (keep(reduce))
        gradient = reduce.results[0];
    }
  }
  auto find = [&]() -> Statement & {
    return *llvm::find_if(draft_.statements, [&](const Statement &each) {
      return each.declares() && each.results[0] == param;
    });
  };
  std::string before = find().contract;
  if (!sync.empty())
    find().contract = fmt::format(" {{ sync = {{ {} }} }}", fmt::join(sync, ", "));
  Statement reads;
  reads.op = "step";
  reads.operands = {Operand::value(param), Operand::value(gradient)};
  bool kept = random_.chance(80) && keep(reads);
  if (kept || sync.empty())
    return;
  std::unique_ptr<Checked> made = check(draft_);
  if (made->clean())
    now_ = std::move(made);
  else
    find().contract = before;
}

} // namespace spmd::soundness
