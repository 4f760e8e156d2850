// All parts of a tensor have to enter a result alike: whoever renames them renames the addends of
// the result, and has the same ones. What a mask of a rank never leaves out is not judged, since
// ranks may mean to use it in another way in each turn.
#include "checker/gradual/micro_batches/micro_batches.h"

#include "checker/gradual/micro_batches/rank_interpreter.h"

#include "rules/transitions/axes.h"
#include "rules/transitions/call.h"
#include "rules/violations/steps/micro_batches.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallSet.h"

#include <fmt/format.h>

#include <set>

namespace spmd::checker {

using ir::InstId;
using ir::ValueId;

namespace {

constexpr int64_t kLeastParts =
    3; // of two, one may be the first and the other the last of a series

// How an addend is made of parts: of which tensors, and which of these give the same part.
using Pattern = std::vector<std::pair<uint32_t, uint32_t>>; // source, and the first such source

Pattern pattern_of(const Addend &addend) {
  Pattern pattern;
  for (const PartOf &each : addend) {
    const auto first =
        llvm::find_if(addend, [&](const PartOf &other) { return other.part == each.part; });
    pattern.push_back({each.source, first->source});
  }
  return pattern;
}

size_t kinds(const Pattern &pattern) {
  return static_cast<size_t>(
      llvm::count_if(pattern, [](auto each) { return each.first == each.second; }));
}

class Judge {
public:
  Judge(ir::Program &program, CheckResult &result, RankInterpreter &followed, ir::AxisId axis)
      : program_(program), result_(result), followed_(followed), axis_(axis) {}

  void run() {
    for (const ir::Output &output : program_.outputs)
      if (judge(output.value))
        return;
  }

private:
  std::optional<std::vector<Addend>> addends(ValueId value);
  std::set<int64_t> counts(llvm::ArrayRef<Addend> addends) const;
  bool judge(ValueId value);
  bool judge(const std::vector<Addend> &all, int64_t parts);
  void report(const Addend &odd, int64_t parts, const std::set<Addend> &there);
  std::string name(uint32_t source) const;

  ir::Program &program_;
  CheckResult &result_;
  RankInterpreter &followed_;
  ir::AxisId axis_;
};

// What a result that all ranks have is made of; none: not all of it is known.
std::optional<std::vector<Addend>> Judge::addends(ValueId value) {
  const ir::TypeId type = result_.types[value.index];
  if (!type.valid() || !program_.types[type].same_on_all_ranks().contains(axis_))
    return std::nullopt;
  const RankInterpreter::Cells &cells = followed_.cells(0, value);
  std::vector<Addend> all;
  for (size_t c = 0; c < cells.of.size(); ++c) {
    const Content &content = followed_.contents()[cells.of[c]];
    if (content.form == Content::Form::Open)
      return std::nullopt;
    std::vector<Addend> own = content.addends;
    if (own.empty())
      own.emplace_back();
    for (Addend &addend : own) {
      if (!cells.uniform())
        addend.push_back({PartOf::kResult, static_cast<int64_t>(c)});
      all.push_back(std::move(addend));
    }
  }
  // Of a tensor of which some addend has several parts, nothing is said.
  std::set<uint32_t> dropped;
  for (const Addend &addend : all)
    for (const PartOf &each : addend) {
      const RankInterpreter::Source *source = followed_.source(each.source);
      if (each.part == PartOf::kMany || (source && !source->left))
        dropped.insert(each.source);
    }
  for (Addend &addend : all)
    llvm::erase_if(addend, [&](const PartOf &each) { return dropped.count(each.source) != 0; });
  return all;
}

// In how many parts tensors are taken, of which the addends are made.
std::set<int64_t> Judge::counts(llvm::ArrayRef<Addend> addends) const {
  std::set<int64_t> counts;
  for (const Addend &addend : addends)
    for (const PartOf &each : addend)
      if (const RankInterpreter::Source *source = followed_.source(each.source))
        if (source->parts >= kLeastParts)
          counts.insert(source->parts);
  return counts;
}

bool Judge::judge(ValueId value) {
  const auto all = addends(value);
  if (!all)
    return false;
  const auto entries = static_cast<int64_t>(followed_.cells(0, value).of.size());
  for (int64_t parts : counts(*all)) {
    std::vector<Addend> own;
    for (Addend addend : *all) {
      llvm::erase_if(addend, [&](const PartOf &each) {
        const RankInterpreter::Source *source = followed_.source(each.source);
        return source ? source->parts != parts : entries != parts;
      });
      own.push_back(std::move(addend));
    }
    if (judge(own, parts))
      return true;
  }
  return false;
}

// Renamed parts give the same addends: those of one pattern are there for all choices of different
// parts, or for none.
bool Judge::judge(const std::vector<Addend> &all, int64_t parts) {
  std::map<Pattern, std::set<Addend>> by_pattern;
  for (const Addend &addend : all)
    if (!addend.empty())
      by_pattern[pattern_of(addend)].insert(addend);
  const std::pair<const Pattern, std::set<Addend>> *odd = nullptr;
  for (const auto &each : by_pattern) {
    int64_t choices = 1;
    for (size_t i = 0; i < kinds(each.first); ++i)
      choices *= parts - static_cast<int64_t>(i);
    // What meets a wrong part says most.
    if (static_cast<int64_t>(each.second.size()) < choices &&
        (!odd || kinds(odd->first) < kinds(each.first)))
      odd = &each;
  }
  if (!odd)
    return false;
  report(*odd->second.begin(), parts, odd->second);
  return true;
}

std::string Judge::name(uint32_t source) const {
  return ir::print(program_.values[ValueId{source}].name, program_.strings);
}

void Judge::report(const Addend &odd, int64_t parts, const std::set<Addend> &there) {
  const auto of =
      llvm::find_if(odd, [](const PartOf &each) { return each.source != PartOf::kResult; });
  if (of == odd.end())
    return;
  const RankInterpreter::Source &source = *followed_.source(of->source);
  const auto other = llvm::find_if(odd, [&](const PartOf &each) { return each.part != of->part; });
  std::string how;
  int64_t part = of->part;
  if (other != odd.end() && other->source == PartOf::kResult)
    how = fmt::format("it is in entry {} of the result", other->part);
  else if (other != odd.end())
    how = fmt::format("it meets part {} of {}", other->part, name(other->source));
  else {
    std::set<int64_t> have;
    for (const Addend &addend : there)
      have.insert(addend.front().part);
    int64_t missing = 0;
    while (have.count(missing))
      ++missing;
    if (odd.size() > 1 || have.size() * 2 > static_cast<size_t>(parts)) {
      part = missing;
      how = "the result has nothing of it";
    } else
      how = "it enters without what the others meet";
  }
  result_.findings.push_back(
      {rules::UnlikeParts{{source.operand}, parts, part, how, axis_}, Place::inst(source.first)});
}

} // namespace

void judge_micro_batches(ir::Program &program, CheckResult &result) {
  rules::Rules rules(program);
  OperandList list;
  std::set<std::pair<uint32_t, uint32_t>> judged;
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i) {
    const ir::Inst inst = program.insts[InstId{i}];
    const rules::ResolvedOp &op = rules.resolve(inst.op);
    if (op.transition != rules::TransitionOp::CollectivePermute)
      continue;
    list.read(program, inst.operands);
    const auto args = list.args(result.types, result.shapes);
    const rules::Application app{program, op, inst.attrs, inst.context, list.slots, args, {}};
    const ir::AxisSet axes = rules::communicated_axes(app);
    const ir::MeshId mesh = program.contexts[inst.context].mesh;
    if (axes.size() != 1 || !judged.insert({mesh.index, (*axes.begin()).index}).second)
      continue;
    const ir::AxisId axis = *axes.begin();
    if (!RankInterpreter::can_follow(program, mesh, axis))
      continue;
    RankInterpreter followed(program, result, mesh, axis);
    followed.run();
    Judge(program, result, followed, axis).run();
  }
}

} // namespace spmd::checker
