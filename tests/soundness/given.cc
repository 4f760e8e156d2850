// What is derived is printed, and its lines are read as statements of a draft.
#include "tests/soundness/given.h"

#include "checker/backward.h"
#include "ir/input.h"

#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

namespace spmd::soundness {

namespace {

// Splits where the separator stands outside of all brackets.
llvm::SmallVector<llvm::StringRef, 4> parts_of(llvm::StringRef text, llvm::StringRef separator) {
  llvm::SmallVector<llvm::StringRef, 4> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    depth += (c == '[' || c == '(' || c == '{') - (c == ']' || c == ')' || c == '}');
    if (depth == 0 && text.substr(i).startswith(separator)) {
      parts.push_back(text.slice(begin, i));
      i += separator.size() - 1;
      begin = i + 1;
    }
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::optional<unsigned> number_of(llvm::StringRef value) {
  unsigned number = 0;
  if (!value.trim().consume_front("%") || value.trim().drop_front().getAsInteger(10, number))
    return std::nullopt;
  return number;
}

Operand operand_of(llvm::StringRef text) {
  text = text.trim();
  if (std::optional<unsigned> value = number_of(text))
    return Operand::value(*value);
  llvm::SmallVector<unsigned, 2> members;
  bool list = text.startswith("[") && text.endswith("]");
  if (list)
    for (llvm::StringRef each : parts_of(text.drop_front().drop_back(), ","))
      if (std::optional<unsigned> value = number_of(each))
        members.push_back(*value);
      else
        list = false;
  return list ? Operand::list(members) : Operand::literal(text.str());
}

bool read_results(llvm::StringRef text, Statement &statement) {
  for (llvm::StringRef each : parts_of(text, ", ")) {
    auto [named, claim] = each.split(": ");
    auto [name, of] = named.split(" grad_of ");
    std::optional<unsigned> number = number_of(name);
    if (!number)
      return false;
    statement.results.push_back(*number);
    statement.claims.push_back(claim.str());
    std::optional<unsigned> value = of.empty() ? std::nullopt : number_of(of);
    statement.gradient_of.push_back(value ? static_cast<int>(*value) : -1);
  }
  return true;
}

std::optional<Statement> statement_of(llvm::StringRef line) {
  Statement statement;
  llvm::SmallVector<llvm::StringRef, 4> sides = parts_of(line, " = ");
  if (sides.size() > 2 || (sides.size() == 2 && !read_results(sides[0], statement)))
    return std::nullopt;
  auto [op, rest] = sides.back().split(' ');
  for (llvm::StringRef role : {"input", "param", "const", "buffer"})
    if (op == role) {
      statement.role = op.str();
      statement.claims.clear();
      llvm::SmallVector<llvm::StringRef, 4> parts = parts_of(rest, " {");
      statement.type = parts[0].str();
      if (parts.size() > 1)
        statement.contract = " {" + parts[1].str();
      return statement;
    }
  statement.op = op.str();
  size_t open = parts_of(rest, " {")[0].size();
  llvm::StringRef attrs = rest.substr(open).trim();
  if (rest.startswith("{"))
    attrs = rest, open = 0;
  if (llvm::StringRef operands = rest.substr(0, open).trim(); !operands.empty())
    for (llvm::StringRef each : parts_of(operands, ","))
      statement.operands.push_back(operand_of(each));
  if (attrs.consume_front("{") && attrs.consume_back("}"))
    for (llvm::StringRef each : parts_of(attrs, ","))
      statement.attrs.emplace_back(each.split(" = ").first.trim().str(),
                                   each.split(" = ").second.trim().str());
  return statement;
}

// The text of a program as a draft; regions are one deep.
std::optional<Draft> draft_of(llvm::StringRef text) {
  Draft draft;
  std::string region;
  bool in_function = false;
  llvm::SmallVector<llvm::StringRef, 64> lines;
  text.split(lines, '\n', -1, false);
  for (llvm::StringRef line : lines) {
    if (line.startswith("trace ") || line.startswith("mesh ")) {
      draft.head += line.str() + "\n";
    } else if (line.startswith("func ")) {
      draft.functions.push_back(line.str() + "\n");
      in_function = true;
    } else if (in_function) {
      draft.functions.back() += line.str() + "\n";
      in_function = line != "}";
    } else if (line == "}") {
      region.clear();
    } else if (line.endswith("{")) {
      if (!region.empty())
        return std::nullopt;
      region = line.drop_back().trim().str();
    } else {
      std::optional<Statement> statement = statement_of(line.trim());
      if (!statement)
        return std::nullopt;
      statement->region = region;
      draft.statements.push_back(std::move(*statement));
    }
  }
  return draft;
}

} // namespace

std::optional<Given> give_backward(const Draft &draft, std::string &why) {
  ir::ReadResult read = ir::read_text(draft.print());
  if (!read.errors.empty())
    return why = "the draft cannot be read", std::nullopt;
  ir::Program program = std::move(read.program);
  if (std::optional<checker::NoBackward> none = checker::derive_backward(program))
    return why = none->message, std::nullopt;
  unsigned next = draft.values;
  for (uint32_t v = 0; v < program.values.size(); ++v)
    if (ir::Value &value = program.values[ir::ValueId{v}]; !value.name.is_number())
      value.name = ir::ValueName::number(next++);
  std::optional<Draft> made = draft_of(ir::print_text(program));
  if (!made)
    return why = "the backward is in no form that is read here", std::nullopt;
  made->values = next;
  if (!llvm::StringRef(made->head).contains("trace "))
    made->head = "trace { mode = global }\n" + made->head;
  Given given{std::move(*made), 0};
  auto begins = [](const Statement &statement) {
    return !statement.gradient_of.empty() && statement.gradient_of[0] >= 0;
  };
  while (given.first < given.draft.statements.size() &&
         !begins(given.draft.statements[given.first]))
    ++given.first;
  // As it was recorded: without types of results, where it checks so.
  Draft bare = given.draft;
  for (Statement &statement : bare.statements)
    statement.claims.clear();
  if (check(bare)->clean())
    given.draft = std::move(bare);
  return given;
}

Verdict judge_given(const Draft &original, const Draft &given, uint64_t seed) {
  std::unique_ptr<Checked> before = check(original), after = check(given);
  Verdict verdict;
  if (!before->clean() || !after->clean()) {
    verdict.form = Verdict::Form::Wrong;
    verdict.what = "the backward that was derived does not check";
    return verdict;
  }
  Execution taped(before->program, before->result, seed);
  verdict = taped.run();
  if (!verdict.is(Verdict::Form::Upheld))
    return verdict;
  Execution stated(after->program, after->result, seed);
  verdict = stated.run();
  if (verdict.is(Verdict::Form::Upheld))
    verdict = stated.judge(Claims::All);
  for (const Statement &statement : given.statements)
    for (size_t r = 0; r < statement.gradient_of.size(); ++r) {
      auto of = static_cast<size_t>(statement.gradient_of[r]);
      if (statement.gradient_of[r] < 0 || of >= before->ids.size() || !before->ids[of].valid() ||
          !verdict.is(Verdict::Form::Upheld))
        continue;
      std::string what = stated.refute_against(after->ids[statement.results[r]], taped,
                                               before->ids[of], verdict.gradients);
      if (what.empty())
        continue;
      verdict.form = Verdict::Form::Wrong;
      verdict.what =
          fmt::format("%{}, derived as the gradient of %{}: {}", statement.results[r], of, what);
    }
  // What was asked for by name.
  for (const Statement &statement : original.statements)
    if (statement.op == "grad" && verdict.is(Verdict::Form::Upheld)) {
      ir::ValueId made = after->ids[statement.results[0]];
      if (!made.valid())
        continue;
      std::string what = stated.refute_against(
          made, taped, before->ids[statement.operands[0].values[0]], verdict.gradients);
      if (what.empty())
        continue;
      verdict.form = Verdict::Form::Wrong;
      verdict.what = fmt::format("%{}, derived for `grad`: {}", statement.results[0], what);
    }
  return verdict;
}

} // namespace spmd::soundness
