// Tokens with their errors. The cursor stops at the error that is one too many.
#include "ir/text/read/cursor.h"

#include "ir/input/input.h"
#include "ir/support/format.h"
#include "ir/support/misspelling.h"

#include <cmath>
#include <cstdlib>
#include <fmt/core.h>

namespace spmd::ir {

// Context 0 is that of the first declaration or statement.
void TextCursor::begin_body() {
  if (in_.begun || !need_mesh())
    return;
  in_.begun = true;
  program_.contexts = {};
  program_.contexts.add(in_.context);
}

ContextId TextCursor::context_id() {
  if (program_.contexts.size() < ContextId::kNone - 1u)
    return program_.contexts.add(in_.context);
  fail("there are too many contexts");
  return ContextId{0};
}

bool TextCursor::need_mesh() {
  if (!program_.meshes.empty())
    return true;
  error(peek(), "trace-mesh",
        "no mesh is declared before this; one is written `mesh m { dp = 2, tp = 4 }`");
  Mesh mesh;
  mesh.name = builder_.string("");
  in_.context.mesh = program_.meshes.add(mesh);
  return true;
}

Token TextCursor::peek() {
  if (in_.stopped)
    return {.offset = in_.bytes.size(), .end = in_.bytes.size()};
  if (!in_.next)
    in_.next = in_.lexer.next(in_.brackets > 0);
  return *in_.next;
}

Token TextCursor::peek_second() {
  peek();
  Lexer ahead = in_.lexer;
  return ahead.next(in_.brackets > 0);
}

Token TextCursor::take() {
  Token token = peek();
  in_.next.reset();
  in_.last_end = token.end;
  return token;
}

bool TextCursor::take_if(char punctuation) {
  if (!peek().is(punctuation))
    return false;
  take();
  return true;
}

bool TextCursor::take_word(llvm::StringRef word) {
  if (!peek().is_name(word))
    return false;
  take();
  return true;
}

bool TextCursor::expect(char punctuation) {
  return take_if(punctuation) || expected(fmt::format("`{}`", punctuation));
}

bool TextCursor::open(char bracket) {
  if (!peek().is(bracket))
    return expected(fmt::format("`{}`", bracket));
  if (in_.brackets + in_.blocks >= kMaxNesting)
    return fail(fmt::format("brackets are nested more than {} deep", kMaxNesting));
  take();
  ++in_.brackets;
  return true;
}

bool TextCursor::open_value() {
  if (in_.values == kMaxValueNesting)
    return fail(fmt::format("values are nested more than {} deep", kMaxValueNesting));
  ++in_.values;
  return true;
}

bool TextCursor::close(char bracket) {
  if (!peek().is(bracket))
    return expected(fmt::format("`,` or `{}`", bracket));
  --in_.brackets;
  take();
  return true;
}

bool TextCursor::expect_end_of_statement() {
  return peek().ends_statement() || peek().is('}') || expected("the end of the statement");
}

bool TextCursor::error(uint64_t offset, std::string_view name, std::string message) {
  if (in_.stopped)
    return false;
  auto [line, col] = line_and_column(in_.bytes, offset);
  in_.result.errors.push_back({name, std::move(message), offset, line, col, ""});
  in_.stopped = in_.result.errors.size() == kMaxInputErrors;
  return false;
}

bool TextCursor::error(const Token &token, std::string_view name, std::string message) {
  return error(token.offset, name, std::move(message));
}

bool TextCursor::fail(std::string message) {
  error(peek(), "trace-limit", std::move(message));
  in_.stopped = true;
  return false;
}

bool TextCursor::expected(std::string_view what) {
  Token token = peek();
  if (token.kind == TokenKind::Bad)
    return error(token, "trace-syntax", bad_token(token));
  return error(token, "trace-syntax",
               fmt::format("{} stands where {} was expected", describe(token), what));
}

void TextCursor::unknown_key(const Token &token, std::string_view where,
                             llvm::ArrayRef<std::string_view> known) {
  llvm::SmallVector<llvm::StringRef, 12> names(known.begin(), known.end());
  std::string message = fmt::format("{} has no key `{}`{}", where, std::string_view(token.text),
                                    nearest_suffix(token.text, names));
  // What is left out by a slip of the pen is not what a later version may add.
  if (program_.minor_version <= kMinorVersion &&
      llvm::any_of(names, [&](llvm::StringRef name) { return is_misspelling(token.text, name); })) {
    error(token, "trace-key", std::move(message));
    return;
  }
  if (!in_.options.strict_schema)
    return;
  auto [line, col] = line_and_column(in_.bytes, token.offset);
  in_.result.warnings.push_back({"trace-key", std::move(message), token.offset, line, col, ""});
}

std::optional<Token> TextCursor::any_name(std::string_view what) {
  if (peek().kind == TokenKind::Name)
    return take();
  expected(what);
  return std::nullopt;
}

// R, Reduced, I, V, P and S name kinds and nothing else.
std::optional<StringId> TextCursor::name(std::string_view what) {
  std::optional<Token> token = any_name(what);
  if (!token)
    return std::nullopt;
  if (!is_reserved(token->text))
    return builder_.string(token->text);
  error(*token, "trace-syntax",
        fmt::format("`{}` is a kind and names nothing else", std::string_view(token->text)));
  return std::nullopt;
}

std::optional<std::string> TextCursor::unescaped(const Token &token) {
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

std::optional<std::string> TextCursor::string(std::string_view what) {
  if (peek().kind == TokenKind::String)
    return unescaped(take());
  expected(what);
  return std::nullopt;
}

std::optional<std::string> TextCursor::word_or_string(std::string_view what) {
  if (peek().kind == TokenKind::Name)
    return take().text.str();
  return string(what);
}

std::optional<int64_t> TextCursor::integer(std::string_view what, int64_t least,
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

std::optional<AttrValue> TextCursor::number() {
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

std::optional<bool> TextCursor::boolean() {
  if (take_word("true"))
    return true;
  if (take_word("false"))
    return false;
  expected("`true` or `false`");
  return std::nullopt;
}

// Names joined by `-`, or a string.
std::optional<std::string> TextCursor::finding() {
  Token first = peek();
  std::optional<std::string> text;
  if (first.kind == TokenKind::String)
    text = string("a finding");
  else
    text = dashed_name("a finding");
  if (text && !is_finding(*text))
    error(first, "trace-key",
          fmt::format("`{}` is no name of a finding", llvm::StringRef(*text).take_front(60)));
  return text;
}

std::optional<std::string> TextCursor::dashed_name(std::string_view what) {
  std::string text;
  for (std::optional<Token> part = any_name(what); part; part = any_name(what)) {
    text += part->text;
    if (!take_if('-'))
      return text;
    text += '-';
  }
  return std::nullopt;
}

std::optional<StringId> TextCursor::op_name() {
  if (peek().kind == TokenKind::String) {
    std::optional<std::string> text = string("an operation");
    return text ? std::optional(builder_.string(*text)) : std::nullopt;
  }
  std::optional<Token> part = any_name("an operation");
  if (!part)
    return std::nullopt;
  std::string text = part->text.str();
  while (take_if('.')) {
    part = any_name("the rest of an operation's name");
    if (!part)
      return std::nullopt;
    text += '.';
    text += part->text;
  }
  return builder_.string(text);
}

} // namespace spmd::ir
