// The lines of a program as statements of a draft.
#include "ir/support/strings.h"
#include "tests/soundness/draft.h"

#include "llvm/ADT/StringRef.h"

namespace spmd::soundness {

namespace {

// Splits where the separator stands outside of all brackets.
llvm::SmallVector<llvm::StringRef, 4> parts_of(llvm::StringRef text, llvm::StringRef separator) {
  llvm::SmallVector<llvm::StringRef, 4> parts;
  int depth = 0;
  size_t begin = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    quoted ^= c == '"';
    if (quoted)
      continue;
    depth += (c == '[' || c == '(' || c == '{') - (c == ']' || c == ')' || c == '}');
    if (depth == 0 && ir::starts_with(text.substr(i), separator)) {
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
  bool list = ir::starts_with(text, "[") && ir::ends_with(text, "]");
  if (list)
    for (llvm::StringRef each : parts_of(text.drop_front().drop_back(), ",")) {
      std::optional<unsigned> value = number_of(each);
      list &= value.has_value();
      members.push_back(value.value_or(0));
    }
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
      statement.type = parts_of(rest, " {")[0].str();
      statement.contract = rest.substr(statement.type.size()).str();
      return statement;
    }
  statement.op = op.str();
  size_t open = parts_of(rest, " {")[0].size();
  llvm::StringRef attrs = rest.substr(open).trim();
  if (ir::starts_with(rest, "{"))
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

} // namespace

std::optional<Draft> read_draft(std::string_view program) {
  llvm::StringRef text(program.data(), program.size());
  Draft draft;
  std::string region;
  bool in_function = false;
  llvm::SmallVector<llvm::StringRef, 64> lines;
  text.split(lines, '\n', -1, false);
  for (llvm::StringRef line : lines) {
    if (ir::starts_with(line, "trace ") || ir::starts_with(line, "mesh ")) {
      draft.head += line.str() + "\n";
    } else if (ir::starts_with(line, "func ")) {
      draft.functions.push_back(line.str() + "\n");
      in_function = true;
    } else if (in_function) {
      draft.functions.back() += line.str() + "\n";
      in_function = line != "}";
    } else if (line.trim().empty() || ir::starts_with(line, "//")) {
      continue;
    } else if (line == "}") {
      region.clear();
    } else if (ir::ends_with(line, "{")) {
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
  for (const Statement &statement : draft.statements)
    for (unsigned id : statement.results)
      draft.values = std::max(draft.values, id + 1);
  return draft;
}

} // namespace spmd::soundness
