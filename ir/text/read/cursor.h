// What every part of the text reader reads with: the token at hand, errors, brackets and lists,
// names and numbers. A function that returns false has reported a malformed statement; what is only
// wrong in meaning is reported, and reading goes on.
#pragma once

#include "ir/claims.h"
#include "ir/input/input.h"
#include "ir/text/lexer.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace spmd::ir {

// The text, how far it is read, and the program that comes of it.
struct TextInput {
  TextInput(llvm::StringRef bytes, const ReadOptions &options, ReadResult &result)
      : bytes(bytes), options(options), result(result), builder(result.program), lexer(bytes) {}

  llvm::StringRef bytes;
  const ReadOptions &options;
  ReadResult &result;
  Builder builder;
  Lexer lexer;
  std::optional<Token> next;
  uint64_t last_end = 0; // of the token taken last
  unsigned brackets = 0; // open ones, in which newlines are blanks
  unsigned blocks = 0;   // open ones
  unsigned values = 0;   // lists and dictionaries around the operand or attribute at hand
  bool stopped = false;
  bool lost_values = false; // part of the program was skipped: undefined values say nothing
  Context context;          // of what is read
  bool begun = false;       // a declaration or statement was read: context 0 is fixed
};

class TextCursor {
protected:
  using Key = llvm::StringRef;

  explicit TextCursor(TextInput &input)
      : in_(input), program_(input.result.program), builder_(input.builder) {}

  // Tokens.
  Token peek();
  Token peek_second();
  Token take();
  bool take_if(char punctuation);
  bool take_word(llvm::StringRef word);
  bool expect(char punctuation);
  bool open(char bracket); // from here on newlines are blanks
  bool open_value();       // false if too many are open; the caller counts in_.values down
  bool close(char bracket);
  bool expect_end_of_statement();

  // Errors.
  bool error(uint64_t offset, std::string_view name, std::string message);
  bool error(const Token &token, std::string_view name, std::string message);
  bool fail(std::string message);       // `trace-limit`, and nothing more is read
  bool expected(std::string_view what); // `trace-syntax` at the next token
  void unknown_key(const Token &token, std::string_view where,
                   llvm::ArrayRef<std::string_view> known);

  // Lists: item() for each element between brackets, which may be none.
  template <class F> bool list(char open_bracket, char close_bracket, F &&item);
  // `{ key = ... }`: pair(token of the key, key) reads what follows `=`. Repeated keys are errors.
  // `is_own_key`: keys for which the bare word and the quoted word are two different keys; null:
  // there are none.
  template <class F> bool dict(F &&pair, bool (*is_own_key)(llvm::StringRef key) = nullptr);

  // Names and numbers.
  std::optional<StringId> name(std::string_view what);
  std::optional<Token> any_name(std::string_view what);
  std::optional<std::string> string(std::string_view what);
  std::optional<std::string> unescaped(const Token &token);
  std::optional<std::string> word_or_string(std::string_view what);
  std::optional<std::string> dashed_name(std::string_view what);
  std::optional<std::string> finding();
  std::optional<StringId> op_name();
  std::optional<int64_t> integer(std::string_view what, int64_t least, std::string_view error_name);
  std::optional<AttrValue> number();
  std::optional<bool> boolean();
  template <class E, size_t N>
  bool enumerator(const std::array<std::string_view, N> &words, std::string_view what, E &out);

  // The context of what is read.
  MeshId mesh() const { return in_.context.mesh; }
  void begin_body();
  bool need_mesh();       // reports once that there is none, and makes one
  ContextId context_id(); // of the context at hand

  TextInput &in_;
  Program &program_;
  Builder &builder_;
};

template <class F> bool TextCursor::list(char open_bracket, char close_bracket, F &&item) {
  if (!open(open_bracket))
    return false;
  if (!peek().is(close_bracket))
    do
      if (!item())
        return false;
    while (take_if(','));
  return close(close_bracket);
}

template <class F> bool TextCursor::dict(F &&pair, bool (*is_own_key)(llvm::StringRef key)) {
  llvm::StringSet<> seen, bare;
  return list('{', '}', [&] {
    Token token = peek();
    std::optional<std::string> key = word_or_string("a key");
    if (!key || !expect('='))
      return false;
    bool is_bare = is_own_key && token.kind == TokenKind::Name && is_own_key(*key);
    if (!(is_bare ? bare : seen).insert(*key).second)
      error(token, "trace-key", "key `" + *key + "` is repeated");
    return pair(token, llvm::StringRef(*key));
  });
}

template <class E, size_t N>
bool TextCursor::enumerator(const std::array<std::string_view, N> &words, std::string_view what,
                            E &out) {
  Token token = peek();
  std::optional<std::string> word = word_or_string(what);
  if (!word)
    return false;
  llvm::SmallVector<llvm::StringRef, 8> known;
  for (size_t i = 0; i < N; ++i) {
    if (words[i] == *word && !word->empty()) {
      out = static_cast<E>(i);
      return true;
    }
    known.push_back(words[i]);
  }
  error(token, "trace-key",
        "`" + *word + "` is no " + std::string(what) + nearest_suffix(*word, known));
  return true;
}

} // namespace spmd::ir
