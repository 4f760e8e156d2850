// Walks the tokens of one JSON text. simdjson finds them (its first stage, which also proves UTF-8
// and the ends of strings); the cursor checks the grammar between them on the way, and can be set
// back to any token. The bytes stay the caller's, and nothing behind them is read. Every reading
// call consumes exactly one value, or marks the text as failed, after which nothing is left to
// read.
#pragma once

#include "ir/input/input.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Allocator.h"

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace spmd::ir {

class JsonCursor {
public:
  using Token = uint32_t;
  static constexpr Token kAbsent = ~0u;

  // The values of the known keys of an object, and where the object begins.
  template <size_t N> struct Fields {
    std::array<Token, N> at, end;
    Token object = 0;
    bool has(size_t key) const { return at[key] != kAbsent; }
  };

  explicit JsonCursor(llvm::StringRef bytes);
  ~JsonCursor();

  // First byte of the token at hand: `{ [ " t f n - 0..9`; 0 at the end and after a failure.
  char peek() const { return byte(at_); }
  Token at() const { return at_; }
  void seek(Token token) { at_ = failed_ ? count_ : token; }
  bool at_end() const { return at_ >= count_; }
  uint64_t offset(Token token) const { return base_ + index_[token]; }
  // The text of the value at hand, which is skipped, its grammar unchecked; of the tokens from one
  // to another.
  llvm::StringRef raw();
  llvm::StringRef raw(Token begin, Token end) const {
    const char *first = text_ + index_[begin], *last = text_ + index_[end];
    while (last != first && is_blank(last[-1]))
      --last;
    return llvm::StringRef(first, static_cast<size_t>(last - first));
  }
  // `ops[17].out[0].spec`, of the value or the key at a token.
  std::string path_of(Token token) const;

  // Records of a stream. From here on paths begin at the value at hand.
  void begin_record() { root_ = at_; }
  // True if the value at hand stands on the last line and its brackets do not close.
  bool is_truncated_record() const;
  // Where the text ends in the middle of a record, if it does.
  const std::optional<InputError> &torn() const { return torn_; }
  // More text than can be indexed at once comes in windows of whole lines. False at the end.
  bool next_window();
  bool has_next_window() const { return window_end_ < all_.size(); }
  // The first key of the object at hand, as written; empty if there is none.
  llvm::StringRef first_key() const {
    bool keyed = peek() == '{' && byte(at_ + 1) == '"';
    return keyed ? string_body(at_ + 1) : llvm::StringRef();
  }

  // Errors name a token; the text fails after kMaxInputErrors of them.
  void error(Token token, std::string_view name, std::string message, std::string_view key = {});
  // A fault after which nothing can be read.
  void fail(uint64_t offset, std::string_view name, std::string message, std::string path = {});
  void error_at(uint64_t offset, std::string_view name, std::string message, std::string path);
  bool failed() const { return failed_; }
  uint64_t size() const { return all_.size(); }
  const std::vector<InputError> &errors() const { return errors_; }

  // Calls element(index) for each element; it must consume one value. False if the value is no
  // array.
  template <class F> bool array(F &&element);
  // Calls member(key) for each member; it must consume one value. Repeated keys are errors.
  template <class F> bool object(F &&member);
  // Finds the known keys of an object and passes over it; unknown(key) must consume one value.
  template <size_t N, class F>
  bool fields(const std::array<std::string_view, N> &keys, Fields<N> &out, F &&unknown);

  // Absent, and `trace-key` reported, if the value has another form.
  std::optional<llvm::StringRef> string() {
    llvm::StringRef body;
    if (peek() != '"' || !plain_text(at_, body))
      return slow_string();
    ++at_;
    return body;
  }
  // Passes over a string of this sign and at most nine digits, the first of them 0 only if it is
  // the only one; nothing else is passed over.
  std::optional<uint32_t> signed_digits(char sign) {
    if (at_ + 1 >= count_ || peek() != '"')
      return std::nullopt;
    const char *at = text_ + index_[at_] + 1, *end = text_ + index_[at_ + 1];
    if (end - at < 3 || *at++ != sign)
      return std::nullopt;
    const char *first = at;
    uint32_t number = 0;
    for (; at != end && at - first < 9 && llvm::isDigit(*at); ++at)
      number = number * 10 + static_cast<uint32_t>(*at - '0');
    if (at == first || at == end || *at != '"' || (*first == '0' && at != first + 1))
      return std::nullopt;
    ++at_;
    return number;
  }
  std::optional<bool> boolean();
  std::optional<int64_t> integer(int64_t least, int64_t most = kMaxInteger,
                                 std::string_view name = "trace-key");
  struct Number {
    bool whole = false;
    int64_t integer = 0;
    double real = 0;
  };
  std::optional<Number> number();
  bool null(); // true, and consumed, if it is one
  // Checks the grammar of one value of any form and passes over it.
  void skip();
  // `trace-key`: another form than the one named; passes over the value.
  void mismatch(std::string_view wanted);

private:
  static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
  char byte(Token token) const { return token < count_ ? text_[index_[token]] : '\0'; }
  llvm::StringRef string_body(Token token) const {
    const char *begin = text_ + index_[token] + 1;
    // Nothing but blanks stands between the closing quote and the next token.
    const char *end = text_ + index_[token + 1] - 1;
    while (*end != '"')
      --end;
    return llvm::StringRef(begin, static_cast<size_t>(end - begin));
  }
  // The body, if it is short and without escapes; otherwise the slow way is needed.
  bool plain_text(Token token, llvm::StringRef &body) const {
    body = string_body(token);
    if (body.size() > 32)
      return false;
    bool escapes = false;
    for (char c : body)
      escapes |= c == '\\';
    return !escapes;
  }
  std::optional<llvm::StringRef> unescape(Token token, llvm::StringRef body);
  std::optional<llvm::StringRef> text_of(Token token);
  std::optional<llvm::StringRef> key() {
    llvm::StringRef body;
    if (peek() != '"' || byte(at_ + 1) != ':' || !plain_text(at_, body))
      return slow_key();
    at_ += 2;
    return body;
  }
  // Passes over this key and its colon, if it is at hand and written plainly.
  bool take_key(std::string_view key) {
    if (at_ + 1 >= count_)
      return false;
    const uint32_t begin = index_[at_], end = index_[at_ + 1];
    const char *at = text_ + begin;
    if (end - begin < key.size() + 2 || at[1] != key[0] || at[0] != '"' ||
        at[key.size() + 1] != '"' || text_[end] != ':' ||
        std::memcmp(at + 1, key.data(), key.size()) != 0)
      return false;
    at_ += 2;
    return true;
  }
  std::optional<llvm::StringRef> slow_key();
  std::optional<llvm::StringRef> slow_string();
  void pass() {
    char c = peek();
    bool scalar = c == '"' || (c >= '-' && c <= '9' && c != '.' && c != '/') || c == 't' ||
                  c == 'f' || c == 'n';
    scalar ? void(++at_) : pass_nested();
  }
  void pass_nested();
  bool enter(char open, std::string_view form) {
    if (peek() != open || depth_ >= kMaxNesting)
      return refuse(open, form);
    ++depth_;
    ++at_;
    return true;
  }
  bool refuse(char open, std::string_view form);
  bool next(char close) {
    char c = peek();
    if (c != ',' && c != close)
      return syntax(close == ']' ? "`,` or `]`" : "`,` or `}`"), false;
    ++at_;
    depth_ -= c == close;
    return c == ',';
  }
  void syntax(std::string_view expected);
  bool literal(llvm::StringRef word);
  bool ends_scalar(const char *end) const;
  std::optional<int64_t> small_number(const char *begin) const;
  void load();
  bool index(llvm::StringRef bytes);
  InputError diagnose() const;
  void repeated(Token token, llvm::StringRef key);

  struct Tokens;
  std::unique_ptr<Tokens> tokens_;
  llvm::StringRef all_;   // the bytes of the caller
  size_t window_end_ = 0; // what is indexed: [base_, window_end_)
  uint64_t base_ = 0;
  const char *text_;
  const char *end_;
  const uint32_t *index_;
  Token count_ = 0;
  Token at_ = 0, root_ = 0;
  unsigned depth_ = 0;
  bool failed_ = false;
  std::vector<InputError> errors_;
  std::optional<InputError> torn_;
  llvm::BumpPtrAllocator arena_; // of strings that held escapes
};

template <class F> bool JsonCursor::array(F &&element) {
  if (!enter('[', "a list"))
    return false;
  if (peek() == ']') {
    ++at_, --depth_;
    return true;
  }
  uint32_t i = 0;
  do
    element(i++);
  while (next(']'));
  return true;
}

template <class F> bool JsonCursor::object(F &&member) {
  if (!enter('{', "an object"))
    return false;
  if (peek() == '}') {
    ++at_, --depth_;
    return true;
  }
  llvm::SmallDenseSet<llvm::StringRef, 8> seen;
  do {
    Token token = at_;
    std::optional<llvm::StringRef> name = key();
    if (!name)
      return true;
    if (!seen.insert(*name).second)
      repeated(token, *name);
    member(*name);
  } while (next('}'));
  return true;
}

template <size_t N, class F>
bool JsonCursor::fields(const std::array<std::string_view, N> &keys, Fields<N> &out, F &&unknown) {
  out.at.fill(kAbsent);
  out.object = at_;
  if (!enter('{', "an object"))
    return false;
  if (peek() == '}') {
    ++at_, --depth_;
    return true;
  }
  std::optional<llvm::SmallDenseSet<llvm::StringRef, 4>> others;
  size_t i = 0; // writers keep to an order: each key is looked for behind the one before
  do {
    Token token = at_;
    size_t tried = 0;
    for (; tried < N && !take_key(keys[i]); ++tried)
      i = i + 1 < N ? i + 1 : 0;
    if (tried == N) { // unknown, or written with escapes
      std::optional<llvm::StringRef> name = key();
      if (!name)
        return true;
      for (i = 0; i < N && *name != llvm::StringRef(keys[i]);)
        ++i;
      if (i == N) {
        if (!others)
          others.emplace();
        if (!others->insert(*name).second)
          repeated(token, *name);
        unknown(*name);
        i = 0;
        continue;
      }
    }
    if (out.has(i))
      repeated(token, keys[i]);
    out.at[i] = at_;
    pass();
    out.end[i] = at_;
  } while (next('}'));
  return true;
}

} // namespace spmd::ir
