// Entry of the text reader: the walk over the program, tokens, errors and recovery, names and
// numbers. A malformed statement is skipped to its end, so that one mistake hides no other.
#include "ir/text/read.h"

#include "ir/dialect/dialect.h"
#include "ir/support/misspelling.h"
#include "ir/support/strings.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdlib>

namespace spmd::ir {

ReadResult read_text(llvm::StringRef bytes, const ReadOptions &options) {
  ReadResult result;
  TextReader(bytes, options, result).read();
  return result;
}

TextReader::TextReader(llvm::StringRef bytes, const ReadOptions &options, ReadResult &result)
    : bytes_(bytes), options_(options), result_(result), program_(result.program),
      builder_(result.program), lexer_(bytes) {}

struct TextReader::Keyword {
  std::string_view word;
  bool (TextReader::*read)();
  bool top_level; // only outside of blocks and functions
};

const TextReader::Keyword TextReader::kKeywords[] = {
    {"trace", &TextReader::read_trace, true},       {"file", &TextReader::read_file, true},
    {"mesh", &TextReader::read_mesh, true},         {"group", &TextReader::read_group, true},
    {"symbol", &TextReader::read_symbol, true},     {"rule", &TextReader::read_rule, true},
    {"suppress", &TextReader::read_suppress, true}, {"func", &TextReader::read_function, true},
    {"output", &TextReader::read_output, true},     {"with", &TextReader::read_with, false},
    {"local", &TextReader::read_local, false},
};

void TextReader::read() {
  if (ir::starts_with(bytes_, "\xEF\xBB\xBF"))
    error(uint64_t(0), "trace-encoding", "a byte order mark stands before the program");
  else if (std::optional<uint64_t> at = first_non_utf8(bytes_))
    error(*at, "trace-encoding", "the bytes from here on are not UTF-8");
  if (result_.errors.empty())
    read_block(true);
  if (!stopped_)
    check_late_gradients();
  bool whole = !stopped_ && result_.errors.empty();
  if (whole) {
    need_mesh();
    begin_body();
  }
  builder_.finish();
  if (whole) {
    fill_declarations(program_);
    check_counts();
  }
  if (!stopped_ && !lost_values_)
    check_functions();
  llvm::stable_sort(result_.errors,
                    [](const InputError &a, const InputError &b) { return a.offset < b.offset; });
}

// Statements up to the end of the file, or up to what closes the block.
bool TextReader::read_block(bool top_level) {
  for (skip_separators(); peek().kind != TokenKind::End; skip_separators()) {
    Token first = peek();
    bool closes = first.is('}') || first.is_name("return") || first.is_name("yield");
    if (closes && nesting_ > 0)
      return true;
    if (closes) {
      if (!lost_values_)
        error(first, "trace-syntax", fmt::format("{} stands outside of a block", describe(first)));
      take();
      recover();
    } else if (!read_statement(top_level))
      recover();
  }
  return true;
}

bool TextReader::read_statement(bool top_level) {
  Token first = peek();
  if (first.kind == TokenKind::Name)
    for (const Keyword &row : kKeywords) {
      if (first.text != llvm::StringRef(row.word))
        continue;
      take();
      if (row.top_level && !top_level)
        return error(first, "trace-syntax",
                     fmt::format("`{}` stands inside of a block, and belongs outside", row.word));
      return (this->*row.read)() && expect_end_of_statement();
    }
  begin_body();
  llvm::SmallVector<WrittenValue, 2> results;
  if (first.kind == TokenKind::Value && !(read_results(results) && expect('=')))
    return false;
  for (std::string_view role : kRoleWords) {
    if (!results.empty() && peek().is_name(role)) {
      auto which = static_cast<Role>(llvm::find(kRoleWords, role) - kRoleWords.begin());
      if (!top_level)
        return expected("an operation: declarations stand outside of blocks");
      if (results.size() > 1 || results[0].typed)
        return expected("an operation: a declaration makes one value, and its type comes last");
      take();
      return read_declaration(results[0], which, first.offset) && expect_end_of_statement();
    }
  }
  if (read_operation(results, first.offset) && expect_end_of_statement())
    return true;
  for (const WrittenValue &value : results)
    if (!builder_.lookup(value.name))
      builder_.define(value_of(value));
  return false;
}

// Context 0 is that of the first declaration or statement.
void TextReader::begin_body() {
  if (begun_ || !need_mesh())
    return;
  begun_ = true;
  program_.contexts = {};
  program_.contexts.add(context_);
}

ContextId TextReader::context_id() {
  if (program_.contexts.size() < ContextId::kNone - 1u)
    return program_.contexts.add(context_);
  fail("there are too many contexts");
  return ContextId{0};
}

bool TextReader::need_mesh() {
  if (!program_.meshes.empty())
    return true;
  error(peek(), "trace-mesh",
        "no mesh is declared before this; one is written `mesh m { dp = 2, tp = 4 }`");
  Mesh mesh;
  mesh.name = builder_.string("");
  context_.mesh = program_.meshes.add(mesh);
  return true;
}

Token TextReader::peek() {
  if (stopped_)
    return {.offset = bytes_.size(), .end = bytes_.size()};
  if (!next_)
    next_ = lexer_.next(brackets_ > 0);
  return *next_;
}

Token TextReader::peek_second() {
  peek();
  Lexer ahead = lexer_;
  return ahead.next(brackets_ > 0);
}

Token TextReader::take() {
  Token token = peek();
  next_.reset();
  last_end_ = token.end;
  return token;
}

bool TextReader::take_if(char punctuation) {
  if (!peek().is(punctuation))
    return false;
  take();
  return true;
}

bool TextReader::take_word(llvm::StringRef word) {
  if (!peek().is_name(word))
    return false;
  take();
  return true;
}

bool TextReader::expect(char punctuation) {
  return take_if(punctuation) || expected(fmt::format("`{}`", punctuation));
}

bool TextReader::open(char bracket) {
  if (!peek().is(bracket))
    return expected(fmt::format("`{}`", bracket));
  if (brackets_ + nesting_ >= kMaxNesting)
    return fail(fmt::format("brackets are nested more than {} deep", kMaxNesting));
  take();
  ++brackets_;
  return true;
}

bool TextReader::open_value() {
  if (values_ == kMaxValueNesting)
    return fail(fmt::format("values are nested more than {} deep", kMaxValueNesting));
  ++values_;
  return true;
}

bool TextReader::close(char bracket) {
  if (!peek().is(bracket))
    return expected(fmt::format("`,` or `{}`", bracket));
  --brackets_;
  take();
  return true;
}

bool TextReader::expect_end_of_statement() {
  return peek().ends_statement() || peek().is('}') || expected("the end of the statement");
}

void TextReader::skip_separators() {
  while (peek().kind == TokenKind::Newline)
    take();
}

// True if the next line looks like a statement of its own, although a bracket is still open.
bool TextReader::starts_statement() {
  Lexer ahead = lexer_;
  Token first = ahead.next(false), second = ahead.next(false);
  if (first.kind == TokenKind::Value)
    return second.is('=') || second.is(':');
  bool keyword =
      llvm::any_of(kKeywords, [&](const Keyword &row) { return first.is_name(row.word); });
  return keyword && !second.is('=');
}

void TextReader::recover() {
  unsigned depth = std::exchange(brackets_, 0);
  values_ = 0;
  next_.reset();
  lexer_.seek(last_end_);
  lost_values_ = true;
  for (Token token = peek(); token.kind != TokenKind::End; token = peek()) {
    if (token.kind == TokenKind::Newline && (depth == 0 || starts_statement()))
      return;
    if (token.is('}') && depth == 0 && nesting_ > 0)
      return;
    if (token.is('(') || token.is('[') || token.is('{'))
      ++depth;
    else if (depth > 0 && (token.is(')') || token.is(']') || token.is('}')))
      --depth;
    take();
  }
}

bool TextReader::error(uint64_t offset, std::string_view name, std::string message) {
  if (stopped_)
    return false;
  auto [line, col] = line_and_column(bytes_, offset);
  result_.errors.push_back({name, std::move(message), offset, line, col, ""});
  stopped_ = result_.errors.size() == kMaxInputErrors;
  return false;
}

bool TextReader::error(const Token &token, std::string_view name, std::string message) {
  return error(token.offset, name, std::move(message));
}

bool TextReader::fail(std::string message) {
  error(peek(), "trace-limit", std::move(message));
  stopped_ = true;
  return false;
}

bool TextReader::expected(std::string_view what) {
  Token token = peek();
  if (token.kind == TokenKind::Bad)
    return error(token, "trace-syntax", bad_token(token));
  return error(token, "trace-syntax",
               fmt::format("{} stands where {} was expected", describe(token), what));
}

void TextReader::unknown_key(const Token &token, std::string_view where,
                             llvm::ArrayRef<std::string_view> known) {
  llvm::SmallVector<llvm::StringRef, 12> names(known.begin(), known.end());
  std::string message = fmt::format("{} has no key `{}`{}", where, std::string_view(token.text),
                                    nearest(token.text, names));
  // What is left out by a slip of the pen is not what a later version may add.
  if (program_.minor_version <= kMinorVersion &&
      llvm::any_of(names, [&](llvm::StringRef name) { return is_misspelling(token.text, name); })) {
    error(token, "trace-key", std::move(message));
    return;
  }
  if (!options_.strict_schema)
    return;
  auto [line, col] = line_and_column(bytes_, token.offset);
  result_.warnings.push_back({"trace-key", std::move(message), token.offset, line, col, ""});
}

std::optional<Token> TextReader::any_name(std::string_view what) {
  if (peek().kind == TokenKind::Name)
    return take();
  expected(what);
  return std::nullopt;
}

// R, Reduced, I, V, P and S name kinds and nothing else.
std::optional<StringId> TextReader::name(std::string_view what) {
  std::optional<Token> token = any_name(what);
  if (!token)
    return std::nullopt;
  if (!is_reserved(token->text))
    return builder_.string(token->text);
  error(*token, "trace-syntax",
        fmt::format("`{}` is a kind and names nothing else", std::string_view(token->text)));
  return std::nullopt;
}

std::optional<std::string> TextReader::unescaped(const Token &token) {
  if (token.text.size() > kMaxString) {
    error(token, "trace-limit", "a string is longer than 1 MiB");
    return std::nullopt;
  }
  std::optional<std::string> text = unescape(token.text);
  if (!text)
    error(token, "trace-syntax",
          "a string has an escape that is none of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX");
  return text;
}

std::optional<std::string> TextReader::string(std::string_view what) {
  if (peek().kind == TokenKind::String)
    return unescaped(take());
  expected(what);
  return std::nullopt;
}

std::optional<std::string> TextReader::word_or_string(std::string_view what) {
  if (peek().kind == TokenKind::Name)
    return take().text.str();
  return string(what);
}

std::optional<int64_t> TextReader::integer(std::string_view what, int64_t least,
                                           std::string_view error_name) {
  Token token = peek();
  bool negative = take_if('-');
  int64_t value = 0;
  if (peek().kind != TokenKind::Integer)
    return expected(what), std::nullopt;
  if (take().text.getAsInteger(10, value) || value > kMaxInteger)
    return error(token, "trace-limit", "an integer is beyond 2^53"), std::nullopt;
  value = negative ? -value : value;
  if (value < least)
    error(token, error_name,
          fmt::format("{} is {}, and at least {} is needed", what, value, least));
  return std::max(value, least);
}

std::optional<AttrValue> TextReader::number() {
  Token token = peek();
  double sign = take_if('-') ? -1 : 1;
  if (take_word("inf"))
    return AttrValue::number(sign * INFINITY);
  if (sign > 0 && take_word("nan"))
    return AttrValue::number(NAN);
  if (peek().kind == TokenKind::Integer) {
    int64_t value = 0;
    if (!take().text.getAsInteger(10, value) && value <= kMaxInteger)
      return AttrValue::integer(sign < 0 ? -value : value);
    return error(token, "trace-limit", "an integer is beyond 2^53"), std::nullopt;
  }
  if (peek().kind != TokenKind::Float)
    return expected("a number"), std::nullopt;
  double value = std::strtod(take().text.str().c_str(), nullptr);
  if (std::isinf(value))
    return error(token, "trace-limit", "a number is beyond the range of a double"), std::nullopt;
  return AttrValue::number(sign * value);
}

std::optional<bool> TextReader::boolean() {
  if (take_word("true"))
    return true;
  if (take_word("false"))
    return false;
  expected("`true` or `false`");
  return std::nullopt;
}

} // namespace spmd::ir
