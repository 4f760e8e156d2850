// Tokens of the text form, escapes in strings, and the check of UTF-8.
#include "ir/text/lexer.h"

#include "ir/kind.h"
#include "ir/program.h"
#include "ir/support/escape.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ConvertUTF.h"

#include <fmt/core.h>

namespace spmd::ir {

static bool in_name(char c) { return llvm::isAlnum(c) || c == '_'; }
static bool in_id(char c) { return in_name(c) || c == '.' || c == '/' || c == '-'; }
static bool is_digit(char c) { return llvm::isDigit(c); }

bool is_name(llvm::StringRef text) {
  return !text.empty() && !llvm::isDigit(text.front()) && llvm::all_of(text, in_name);
}

static bool in_op_name(char c) { return in_name(c) || c == '.' || c == ':'; }
bool is_op_name(llvm::StringRef text) {
  return !text.empty() && !llvm::isDigit(text.front()) && text.front() != '.' &&
         llvm::all_of(text, in_op_name);
}

bool is_value_name(llvm::StringRef text) { return !text.empty() && llvm::all_of(text, in_id); }

static bool in_finding(char c) { return in_name(c) || c == '-'; }
bool is_finding(llvm::StringRef text) {
  return !text.empty() && llvm::isAlpha(text.front()) && llvm::all_of(text, in_finding);
}

bool is_date(llvm::StringRef text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-')
    return false;
  unsigned year = 0, month = 0, day = 0;
  bool digits = !text.substr(0, 4).getAsInteger(10, year) &&
                !text.substr(5, 2).getAsInteger(10, month) &&
                !text.substr(8, 2).getAsInteger(10, day);
  return digits && month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

bool is_op_key(llvm::StringRef key) { return key == "phase" || key == "ignore" || key == "bwd_of"; }

bool is_reserved(llvm::StringRef name) {
  bool kind =
      llvm::any_of(kKinds, [&](const KindInfo &row) { return name == llvm::StringRef(row.word); });
  return kind || name == "S";
}

static constexpr StatementWord kStatementWords[] = {
    {"trace", Statement::Trace},       {"file", Statement::File},
    {"mesh", Statement::Mesh},         {"group", Statement::Group},
    {"symbol", Statement::Symbol},     {"rule", Statement::Rule},
    {"suppress", Statement::Suppress}, {"func", Statement::Function},
    {"output", Statement::Output},     {"with", Statement::With, false},
    {"local", Statement::Local, false}};

const StatementWord *find_statement(llvm::StringRef word) {
  const StatementWord *row = llvm::find_if(kStatementWords, [&](const StatementWord &each) {
    return word == llvm::StringRef(each.word);
  });
  return row == std::end(kStatementWords) ? nullptr : row;
}

bool is_keyword(llvm::StringRef name) {
  return find_statement(name) || name == "return" || name == "yield" ||
         llvm::is_contained(kRoleWords, std::string_view(name.data(), name.size()));
}

bool is_plain_id(llvm::StringRef text) {
  return !text.empty() && in_name(text.front()) && llvm::all_of(text, in_id) &&
         !text.contains("//");
}

uint64_t Lexer::run(bool (*member)(char), uint64_t from) const {
  while (from < text_.size() && member(text_[from]))
    ++from;
  return from;
}

Token Lexer::make(TokenKind kind, uint64_t length) {
  Token token{.kind = kind, .offset = at_, .end = at_ + length, .text = text_.substr(at_, length)};
  at_ = token.end;
  return token;
}

void Lexer::skip_blanks(bool skip_newlines) {
  for (;; ++at_) {
    if (peek() == '/' && peek(1) == '/')
      at_ = std::min(text_.find('\n', at_), text_.size());
    bool blank = llvm::StringRef(" \t\r").contains(peek()) || (skip_newlines && peek() == '\n');
    if (at_ >= text_.size() || !blank)
      return;
  }
}

Token Lexer::quoted(TokenKind kind, uint64_t prefix) {
  uint64_t begin = at_ + prefix + 1;
  for (uint64_t i = begin; i < text_.size() && text_[i] != '\n'; ++i) {
    if (text_[i] == '\\')
      ++i;
    else if (text_[i] == '"') {
      Token token = make(kind, i + 1 - at_);
      token.text = text_.slice(begin, i);
      token.quoted = true;
      return token;
    }
  }
  return make(TokenKind::Bad, std::min(text_.find('\n', at_), text_.size()) - at_);
}

Token Lexer::number() {
  uint64_t end = run(is_digit, at_);
  bool real = false;
  auto at = [&](uint64_t i) { return i < text_.size() ? text_[i] : '\0'; };
  if (at(end) == '.' && is_digit(at(end + 1))) {
    real = true;
    end = run(is_digit, end + 1);
  }
  if (at(end) == 'e' || at(end) == 'E') {
    uint64_t digits = end + 1 + (at(end + 1) == '+' || at(end + 1) == '-');
    if (is_digit(at(digits))) {
      real = true;
      end = run(is_digit, digits);
    }
  }
  if (in_name(at(end)))
    return make(TokenKind::Bad, run(in_name, end) - at_);
  return make(real ? TokenKind::Float : TokenKind::Integer, end - at_);
}

Token Lexer::value() {
  if (peek(1) == '"')
    return quoted(TokenKind::Value, 1);
  uint64_t end = at_ + 1;
  while (end < text_.size() && in_id(text_[end]) && text_.substr(end, 2) != "//")
    ++end;
  if (end == at_ + 1)
    return make(TokenKind::Punctuation, 1);
  Token token = make(TokenKind::Value, end - at_);
  token.text = token.text.drop_front();
  return token;
}

Token Lexer::function() {
  if (peek(1) == '"')
    return quoted(TokenKind::Function, 1);
  if (!llvm::isAlpha(peek(1)) && peek(1) != '_')
    return make(TokenKind::Punctuation, 1);
  Token token = make(TokenKind::Function, run(in_name, at_ + 1) - at_);
  token.text = token.text.drop_front();
  return token;
}

Token Lexer::next(bool skip_newlines) {
  skip_blanks(skip_newlines);
  if (at_ >= text_.size())
    return make(TokenKind::End, 0);
  char first = peek();
  if (first == '\n' || first == ';')
    return make(TokenKind::Newline, 1);
  if (llvm::isDigit(first))
    return number();
  if (in_name(first))
    return make(TokenKind::Name, run(in_name, at_) - at_);
  if (first == '"')
    return quoted(TokenKind::String, 0);
  if (first == '%')
    return value();
  // An axis after a kind looks like a function name; the parser knows which one it asks for.
  if (first == '@')
    return function();
  if (first == '-' && peek(1) == '>')
    return make(TokenKind::Arrow, 2);
  if (text_.substr(at_, 3) == "...")
    return make(TokenKind::Ellipsis, 3);
  if (llvm::StringRef("(){}[],:=.@|?+-*/").contains(first))
    return make(TokenKind::Punctuation, 1);
  uint64_t end = at_ + 1;
  while (end < text_.size() && (static_cast<uint8_t>(text_[end]) & 0xC0) == 0x80)
    ++end;
  return make(TokenKind::Bad, end - at_);
}

std::string bad_token(const Token &token) {
  if (llvm::isDigit(token.text.front()))
    return fmt::format("`{}` is neither a number nor a name",
                       std::string_view(token.text.take_front(60)));
  if (token.text.contains('"'))
    return "a string is not closed before the end of its line";
  unsigned char first = static_cast<unsigned char>(token.text.front());
  if (first < 0x20 || first == 0x7F)
    return fmt::format("control character {:#04x} stands outside a string", first);
  return fmt::format("`{}` is no character of this language", std::string_view(token.text));
}

std::string describe(const Token &token) {
  static constexpr std::string_view kWords[] = {
      "the end of the file", "the end of the line", "", "", "", "", "", "a string"};
  if (token.kind == TokenKind::End || token.kind == TokenKind::Newline ||
      token.kind == TokenKind::String)
    return std::string(kWords[static_cast<unsigned>(token.kind)]);
  std::string_view sign = token.kind == TokenKind::Value      ? "%"
                          : token.kind == TokenKind::Function ? "@"
                                                              : "";
  return fmt::format("`{}{}`", sign, std::string_view(token.text.take_front(60)));
}

static void append_utf8(std::string &out, uint32_t code) {
  char bytes[4];
  char *end = bytes;
  llvm::ConvertCodePointToUTF8(code, end);
  out.append(bytes, end);
}

// `\uXXXX`, or a pair of them; `text` starts after the `u`.
static std::optional<uint32_t> unicode_escape(llvm::StringRef &text) {
  auto unit = [&]() -> std::optional<uint32_t> {
    uint32_t code = 0;
    llvm::StringRef digits = text.take_front(4);
    if (digits.size() < 4 || !llvm::all_of(digits, llvm::isHexDigit) ||
        digits.getAsInteger(16, code))
      return std::nullopt;
    text = text.drop_front(4);
    return code;
  };
  std::optional<uint32_t> high = unit();
  if (!high || *high < 0xD800 || *high > 0xDFFF)
    return high;
  if (*high > 0xDBFF || !text.consume_front("\\u"))
    return std::nullopt;
  std::optional<uint32_t> low = unit();
  if (!low || *low < 0xDC00 || *low > 0xDFFF)
    return std::nullopt;
  return 0x10000 + ((*high - 0xD800) << 10) + (*low - 0xDC00);
}

static constexpr llvm::StringLiteral kEscapes = "\"\\/bfnrt";
static constexpr llvm::StringLiteral kEscaped = "\"\\/\b\f\n\r\t";

std::optional<std::string> unescape(llvm::StringRef text) {
  std::string out;
  while (!text.empty()) {
    size_t plain = std::min(text.find('\\'), text.size());
    out += text.take_front(plain);
    text = text.drop_front(plain);
    if (text.empty())
      break;
    if (text.size() < 2)
      return std::nullopt;
    char letter = text[1];
    text = text.drop_front(2);
    if (letter == 'u') {
      std::optional<uint32_t> code = unicode_escape(text);
      if (!code)
        return std::nullopt;
      append_utf8(out, *code);
      continue;
    }
    size_t row = kEscapes.find(letter);
    if (row == llvm::StringRef::npos)
      return std::nullopt;
    out += kEscaped[row];
  }
  return out;
}

std::string quote(llvm::StringRef text) {
  std::string out = "\"";
  append_string(out, text);
  return out += '"';
}

std::optional<uint64_t> first_non_utf8(llvm::StringRef text) {
  const auto *begin = reinterpret_cast<const llvm::UTF8 *>(text.data());
  const llvm::UTF8 *at = begin, *end = begin + text.size();
  while (at != end) {
    if (*at < 0x80) {
      ++at;
      continue;
    }
    if (!llvm::isLegalUTF8Sequence(at, end))
      return at - begin;
    at += llvm::getNumBytesForUTF8(*at);
  }
  return std::nullopt;
}

} // namespace spmd::ir
