// Finds the pieces of a statement in the text with the lexer that also reads it.
#include "checker/fix/text_edits.h"

#include "checker/program_queries.h"

#include "ir/input/input.h"
#include "ir/text/lexer.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"

#include <fmt/format.h>

#include <optional>

namespace spmd::checker {
namespace {

using ir::Token;

struct Statement {
  uint64_t begin = 0, end = 0; // to the end of its attributes; location and comments come after it
  std::vector<Token> values;   // its operands that are values
};

// None where it has other pieces than results, an op, operands and attributes.
std::optional<Statement> statement_at(llvm::StringRef bytes, uint64_t offset) {
  ir::Lexer lexer(bytes);
  lexer.seek(offset);
  Statement found{.begin = offset, .end = offset, .values = {}};
  unsigned depth = 0;
  bool attributes = false;
  while (true) {
    Token token = lexer.next(/*skip_newlines=*/depth > 0);
    if (token.kind == ir::TokenKind::Bad)
      return std::nullopt;
    bool at_end = token.ends_statement();
    if (depth == 0 && (at_end || token.is_name("at") || token.is_name("in")))
      return found;
    if (at_end)
      return std::nullopt;
    if (token.is('=') && depth == 0)
      found.values.clear();
    attributes |= depth == 0 && token.is('{');
    depth += token.is('{') || token.is('[') || token.is('(');
    if (token.is('}') || token.is(']') || token.is(')'))
      depth -= depth > 0;
    if (token.kind == ir::TokenKind::Value && !attributes)
      found.values.push_back(token);
    found.end = token.end;
  }
}

// A name of that beginning which the program does not have.
std::string free_name(llvm::StringRef bytes, const std::string &wanted) {
  std::string name = wanted;
  for (unsigned i = 2; bytes.contains(name); ++i)
    name = wanted + std::to_string(i);
  return name;
}

std::string replaced(std::string text, llvm::StringRef from, const std::string &to) {
  for (size_t at = text.find(from.data(), 0, from.size()); at != std::string::npos;
       at = text.find(from.data(), at + to.size(), from.size()))
    text.replace(at, from.size(), to);
  return text;
}

// The instruction as it is printed with the attributes of the fix.
std::string with_attributes(ir::Program &program, const Fix &fix) {
  ir::Inst &inst = program.insts[fix.inst];
  ir::AttrsId before = std::exchange(inst.attrs, fix.attrs);
  auto restore = llvm::make_scope_exit([&] { inst.attrs = before; });
  return ir::print_inst(program, fix.inst);
}

// Other names for some operands. The same tensor elsewhere among them is seen as before.
std::vector<TextEdit> other_operands(const Statement &statement, llvm::ArrayRef<uint32_t> operands,
                                     llvm::ArrayRef<std::string> names) {
  std::vector<TextEdit> edits;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Token &token = statement.values[operands[i]];
    edits.push_back({token.offset, token.end - token.offset, names[i]});
  }
  llvm::sort(edits, [](const TextEdit &a, const TextEdit &b) { return a.offset < b.offset; });
  return edits;
}

std::vector<TextEdit> insert_before(ir::Program &program, llvm::StringRef bytes, const Fix &fix,
                                    const Statement &statement) {
  llvm::SmallVector<ir::ValueId, 4> tensors = tensors_of(program, fix.inst);
  if (tensors.size() != statement.values.size() || fix.replacement.empty())
    return {};
  std::vector<std::string> names;
  std::string lines = fix.replacement;
  for (uint32_t at : fix.operands) {
    std::string value = ir::print_value(program, tensors[at]), made = value + ".fixed";
    if (!llvm::StringRef(lines).contains(made + " = "))
      return {};
    names.push_back(free_name(bytes, made));
    if (names.back() != made)
      lines = replaced(lines, made, names.back());
  }
  llvm::StringRef line = bytes.take_front(statement.begin);
  line = line.drop_front(line.rfind('\n') + 1); // npos + 1 is 0
  std::string indent = line.trim().empty() ? line.str() : "";
  lines = replaced(lines, "\n", "\n" + indent) + "\n" + indent;
  if (!fix.attrs.valid()) {
    std::vector<TextEdit> edits = other_operands(statement, fix.operands, names);
    edits.insert(edits.begin(), {statement.begin, 0, lines});
    return edits;
  }
  std::string own = with_attributes(program, fix);
  std::optional<Statement> printed = statement_at(own, 0);
  if (!printed || printed->values.size() != tensors.size())
    return {};
  own = apply_edits(own, other_operands(*printed, fix.operands, names));
  return {{statement.begin, statement.end - statement.begin, lines + own}};
}

// A statement with its comment and its line, where it has that for itself.
TextEdit taken_out(llvm::StringRef bytes, const Statement &statement) {
  size_t line = bytes.take_front(statement.begin).rfind('\n') + 1; // npos + 1 is 0
  size_t end = std::min(bytes.find('\n', statement.end), bytes.size());
  llvm::StringRef rest = bytes.slice(statement.end, end);
  bool alone = bytes.slice(line, statement.begin).trim().empty() && !rest.contains(';');
  if (!alone)
    return {statement.begin, statement.end - statement.begin, ""};
  return {line, std::min<size_t>(end + 1, bytes.size()) - line, ""};
}

// Each use of a name behind a byte, as another name. Functions have names of their own.
void rename(llvm::StringRef bytes, uint64_t from, const std::string &old, const std::string &name,
            std::vector<TextEdit> &edits) {
  ir::Lexer lexer(bytes);
  lexer.seek(from);
  for (Token token = lexer.next(true); token.kind != ir::TokenKind::End; token = lexer.next(true)) {
    if (token.kind == ir::TokenKind::Bad)
      return;
    if (token.kind == ir::TokenKind::Value && bytes.slice(token.offset, token.end) == old)
      edits.push_back({token.offset, token.end - token.offset, name});
  }
}

} // namespace

std::vector<TextEdit> rewrite_edits(const ir::Program &program, llvm::StringRef bytes,
                                    const Rewrite &rewrite) {
  std::vector<TextEdit> edits;
  uint64_t last = 0;
  for (const auto &[inst, text] : rewrite.statements) {
    std::optional<Statement> statement = statement_at(bytes, program.origins[inst.index]);
    if (!statement)
      return {};
    last = std::max(last, statement->end);
    edits.push_back(text.empty()
                        ? taken_out(bytes, *statement)
                        : TextEdit{statement->begin, statement->end - statement->begin, text});
  }
  if (rewrite.moved) {
    ir::InstId made = defining_inst(program, tensors_of(program, *rewrite.moved).front());
    std::optional<Statement> statement = statement_at(bytes, program.origins[rewrite.moved->index]),
                             behind = statement_at(bytes, program.origins[made.index]);
    if (!statement || !behind)
      return {};
    TextEdit out = taken_out(bytes, *statement);
    size_t end = std::min(bytes.find('\n', behind->end), bytes.size());
    if (out.text.empty() && out.offset <= end)
      return {}; // on one line
    std::string line = bytes.substr(out.offset, out.length).rtrim('\n').str();
    edits.push_back({end, 0, "\n" + line});
    edits.push_back(std::move(out));
  }
  if (rewrite.renamed)
    rename(bytes, last, ir::print_value(program, rewrite.renamed->first),
           ir::print_value(program, rewrite.renamed->second), edits);
  llvm::sort(edits, [](const TextEdit &a, const TextEdit &b) { return a.offset < b.offset; });
  for (size_t i = 1; i < edits.size(); ++i)
    if (edits[i].offset < edits[i - 1].offset + edits[i - 1].length)
      return {};
  return edits;
}

std::vector<TextEdit> text_edits(ir::Program &program, llvm::StringRef bytes, const Fix &fix) {
  if (!fix.inst.valid() || fix.inst.index >= program.origins.size() ||
      !ir::format_of(bytes).by_hand)
    return {};
  std::optional<Statement> statement = statement_at(bytes, program.origins[fix.inst.index]);
  if (!statement)
    return {};
  if (fix.form == Fix::Form::Transition)
    return insert_before(program, bytes, fix, *statement);
  if (fix.form == Fix::Form::Attribute && fix.attrs.valid())
    return {{statement->begin, statement->end - statement->begin, with_attributes(program, fix)}};
  return {};
}

std::string apply_edits(llvm::StringRef bytes, const std::vector<TextEdit> &edits) {
  std::string out;
  uint64_t at = 0;
  for (const TextEdit &edit : edits) {
    out += bytes.slice(at, edit.offset);
    out += edit.text;
    at = edit.offset + edit.length;
  }
  return out + bytes.drop_front(at).str();
}

} // namespace spmd::checker
