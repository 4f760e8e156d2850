// Splits the text form into tokens. A lexer is a small value: copying it is looking ahead.
// Relies on UTF-8 having been checked; it never reads outside the text.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spmd::ir {

enum class TokenKind : uint8_t {
  End,
  Newline,  // or `;`
  Name,     // letter or `_`, then letters, digits, `_`
  Value,    // `%x`, `%"x"`; the text is what follows `%`
  Function, // `@f`, `@"f"`; the text is what follows `@`
  Integer,
  Float,
  String, // the text is what stands between the quotes, escapes unread
  Punctuation,
  Arrow,    // `->`
  Ellipsis, // `...`
  Bad,      // the text is what was met; bad_token() says what is wrong
};

struct Token {
  TokenKind kind = TokenKind::End;
  bool quoted = false; // Value and Function: escapes may stand in the text
  uint64_t offset = 0; // of its first byte
  uint64_t end = 0;
  llvm::StringRef text = {};

  bool is(char punctuation) const {
    return kind == TokenKind::Punctuation && text.front() == punctuation;
  }
  bool is_name(llvm::StringRef name) const { return kind == TokenKind::Name && text == name; }
  bool ends_statement() const { return kind == TokenKind::End || kind == TokenKind::Newline; }
};

class Lexer {
public:
  explicit Lexer(llvm::StringRef text) : text_(text) {}

  // Inside brackets newlines are blanks.
  Token next(bool skip_newlines);
  uint64_t offset() const { return at_; }
  void seek(uint64_t offset) { at_ = offset; }

private:
  Token make(TokenKind kind, uint64_t length);
  Token quoted(TokenKind kind, uint64_t prefix);
  Token number();
  Token value();
  Token function();
  char peek(uint64_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : 0;
  }
  void skip_blanks(bool skip_newlines);
  uint64_t run(bool (*member)(char), uint64_t from) const;

  llvm::StringRef text_;
  uint64_t at_ = 0;
};

// What is wrong with a token of kind Bad.
std::string bad_token(const Token &token);
// The token as a message quotes it.
std::string describe(const Token &token);

// Statements that a word of their own begins.
enum class Statement : uint8_t {
  Trace,
  File,
  Mesh,
  Group,
  Symbol,
  Rule,
  Suppress,
  Function,
  Output,
  With,
  Local
};
struct StatementWord {
  std::string_view word;
  Statement statement;
  bool top_level_only = true; // it stands nowhere else
};
// Null if the word begins none of them.
const StatementWord *find_statement(llvm::StringRef word);

// What a string stands for; none if an escape is malformed.
std::optional<std::string> unescape(llvm::StringRef text);
// In quotes, as the lexer reads it back.
std::string quote(llvm::StringRef text);
// Offset of the first byte that is not UTF-8; none if all of it is.
std::optional<uint64_t> first_non_utf8(llvm::StringRef text);
bool is_name(llvm::StringRef text);
bool is_reserved(llvm::StringRef name); // names of kinds
bool is_op_key(llvm::StringRef key);    // keys of a statement that are no attributes
bool is_keyword(llvm::StringRef name);  // words that begin another statement than an operation
bool is_date(llvm::StringRef text);     // 2030-01-31
// Lists and dictionaries in one another, as operands and attributes: whatever either encoding wraps
// around them, it stays below kMaxNesting in the other.
inline constexpr unsigned kMaxValueNesting = 24;
// What a program may call these, in any encoding; without `%`.
bool is_op_name(llvm::StringRef text);
bool is_value_name(llvm::StringRef text);
bool is_finding(llvm::StringRef text);
// Values and functions whose names stand without quotes.
bool is_plain_id(llvm::StringRef text);

} // namespace spmd::ir
