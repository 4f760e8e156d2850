// What every part of the JSON reader reads with: the cursor, objects with known keys, words and
// names. Every function reads the one value at hand and reports what is wrong with it.
#pragma once

#include "ir/claims.h"
#include "ir/input/input.h"
#include "ir/json/read/members.h"
#include "ir/program.h"

namespace spmd::ir {

// The text, and the program that comes of it.
struct JsonInput {
  JsonInput(llvm::StringRef bytes, const ReadOptions &options)
      : json(bytes), options(options), builder(result.program) {}

  JsonCursor json;
  const ReadOptions &options;
  ReadResult result;
  Builder builder;
  ContextId context;   // of ops that name none
  unsigned values = 0; // lists and dictionaries around the operand or attribute at hand
};

class JsonPart {
protected:
  using Token = JsonCursor::Token;

  explicit JsonPart(JsonInput &input)
      : in_(input), json_(input.json), program_(input.result.program), builder_(input.builder) {}

  template <size_t N> JsonObject<N> object(const std::array<std::string_view, N> &keys) {
    return JsonObject<N>(json_, keys, [this, &keys](llvm::StringRef key) { unknown(key, keys); });
  }
  void require(const JsonMembers &members, unsigned key, std::string_view word) {
    if (members && !members.has(key))
      json_.error(members.token(), "trace-key", "`" + std::string(word) + "` is missing", word);
  }

  void unknown(llvm::StringRef key, llvm::ArrayRef<std::string_view> known);
  std::optional<llvm::StringRef> word(llvm::ArrayRef<std::string_view> words, std::string_view what,
                                      unsigned &index);
  template <class E>
  void enumeration(llvm::ArrayRef<std::string_view> words, std::string_view what, E &out,
                   int first = 0) {
    unsigned index = 0;
    if (word(words, what, index))
      out = static_cast<E>(index + first);
  }
  StringId text();
  StringId identifier(std::string_view what);
  static bool is_identifier(llvm::StringRef text);
  StringId finding();
  // An index into a table of that many entries.
  std::optional<uint32_t> index(size_t size, std::string_view table);
  bool is_too_deep(); // reports it
  MeshId mesh_of(ContextId context) const {
    MeshId mesh = program_.contexts[context].mesh;
    return mesh.valid() ? mesh : MeshId{0};
  }

  // A word as a message quotes it.
  static std::string cut(llvm::StringRef text) {
    return text.size() > 60 ? text.take_front(60).str() + "..." : text.str();
  }

  JsonInput &in_;
  JsonCursor &json_;
  Program &program_;
  Builder &builder_;
};

} // namespace spmd::ir
