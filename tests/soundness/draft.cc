// Statements of one region that follow one another share its braces.
#include "tests/soundness/draft.h"

#include "rules/violations/gradients.h"
#include "rules/violations/shards.h"
#include "rules/violations/transitions.h"

#include "ir/input/input.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace spmd::soundness {

const std::string *Statement::attr(std::string_view key) const {
  for (const auto &each : attrs)
    if (each.first == key)
      return &each.second;
  return nullptr;
}

void Statement::set(std::string_view key, std::string value) {
  llvm::erase_if(attrs, [&](const auto &each) { return each.first == key; });
  if (!value.empty())
    attrs.emplace_back(key, std::move(value));
}

std::string Statement::print() const {
  std::string text;
  for (size_t i = 0; i < results.size(); ++i) {
    text += fmt::format("{}%{}", i ? ", " : "", results[i]);
    if (i < gradient_of.size() && gradient_of[i] >= 0)
      text += fmt::format(" grad_of %{}", gradient_of[i]);
    if (i < claims.size() && !claims[i].empty())
      text += ": " + claims[i];
  }
  if (!block.empty())
    return text + " = " + print_region();
  if (declares())
    return text + fmt::format(" = {} {}{}", role, type, contract);
  text += results.empty() ? op : " = " + op;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Operand &operand = operands[i];
    text += i ? ", " : " ";
    if (operand.form == Operand::Form::Text)
      text += operand.text;
    else if (operand.form == Operand::Form::Value)
      text += fmt::format("%{}", operand.values[0]);
    else
      text += fmt::format("[%{}]", fmt::join(operand.values, ", %"));
  }
  for (size_t i = 0; i < attrs.size(); ++i)
    text += fmt::format("{}{} = {}", i ? ", " : " { ", attrs[i].first, attrs[i].second);
  return text + (attrs.empty() ? "" : " }");
}

std::string Statement::print_region() const {
  std::string text = fmt::format("{} over {} (", op, over);
  for (size_t i = 0; i < operands.size(); ++i)
    text += fmt::format("{}%p{} = %{}{}", i ? ", " : "", i, operands[i].values[0], enters[i]);
  return text + ") {\n" + block + "}";
}

std::string Statement::context() const {
  if (!unchecked)
    return region;
  llvm::StringRef axes = region;
  return axes.consume_front("local ")
             ? fmt::format("with {{ local = {}, check = false }}", std::string_view(axes))
             : "with { check = false }";
}

std::string Draft::print() const {
  std::string text = head, open;
  for (const std::string &function : functions)
    text += function;
  for (const Statement &statement : statements) {
    if (std::string context = statement.context(); context != open) {
      text += open.empty() ? "" : "}\n";
      text += context.empty() ? "" : context + " {\n";
      open = std::move(context);
    }
    text += (open.empty() ? "" : "  ") + statement.print() + "\n";
  }
  return text + (open.empty() ? "" : "}\n");
}

bool Checked::clean() const {
  return read && result.clean() &&
         llvm::none_of(result.findings, [](const checker::Finding &finding) {
           return finding.violation.is<rules::UnevenList>();
         });
}

std::unique_ptr<Checked> check(const Draft &draft, std::optional<ir::Mode> mode) {
  auto made = std::make_unique<Checked>();
  ir::ReadResult read = ir::read_text(draft.print());
  if (!read.errors.empty())
    return made;
  made->read = true;
  made->program = std::move(read.program);
  made->result = checker::check(made->program, {.mode = mode});
  made->ids.resize(draft.values);
  const ir::Program &program = made->program;
  auto note = [&](ir::ValueId id) {
    ir::ValueName name = program.values[id].name;
    if (uint32_t number = name.bits & ~ir::ValueName::kNumber;
        name.is_number() && number < made->ids.size())
      made->ids[number] = id;
  };
  for (const ir::Param &param : program.params)
    note(param.value);
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i)
    for (uint32_t r = 0; r < program.insts[ir::InstId{i}].result_count; ++r)
      note(program.insts[ir::InstId{i}].result(r));
  return made;
}

std::string axes_text(llvm::ArrayRef<std::string> names) {
  return names.size() == 1 ? names[0] : fmt::format("({})", fmt::join(names, ", "));
}

Owed owed(const Checked &checked, const Statement &statement) {
  Owed owed;
  const ir::Program &program = checked.program;
  for (const checker::Finding &finding : checked.result.findings) {
    if (finding.place.form != checker::Place::Form::Inst || statement.results.empty() ||
        !(program.insts[finding.place.as_inst()].first_result == checked.ids[statement.results[0]]))
      continue;
    owed.expert |= finding.violation.is<rules::ExpertTransition>();
    if (const auto *scale = finding.violation.as<rules::ScaleMismatch>())
      for (size_t r = 0; r < statement.claims.size(); ++r)
        if (scale->value == checked.ids[statement.results[r]])
          owed.scales.emplace_back(r, scale->found);
    if (!finding.violation.is<rules::UnstatedPartial>())
      continue;
    const ir::Mesh &mesh =
        program.meshes[program.contexts[program.insts[finding.place.as_inst()].context].mesh];
    for (ir::AxisId axis : rules::axes_of(finding.violation))
      owed.partial.push_back(program.strings[mesh[axis].name].str());
  }
  return owed;
}

void Owed::state(Statement &statement) const {
  if (!partial.empty() && !statement.attr("partial"))
    statement.set("partial", axes_text(partial));
  else if (expert)
    statement.set("expert", "true");
  for (const auto &[result, scale] : scales)
    if (std::string &claim = statement.claims[result]; claim.find(" scale ") == std::string::npos)
      claim += " scale " + scale;
}

uint64_t Random::next() {
  state_ += 0x9E3779B97F4A7C15ull;
  return ir::mix(state_, state_ >> 17);
}

} // namespace spmd::soundness
