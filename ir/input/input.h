// Reading programs: the input errors of ir/README.md, and the table of formats.
// The reader decides by content, never by file name. A malformed program is never checked.
#pragma once

#include "ir/program.h"
#include "ir/support/limits.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace spmd::ir {

inline constexpr unsigned kMaxInputErrors = 20;
inline constexpr uint32_t kMinorVersion = 1; // of version 1 of the format
// An entry of `requires`: operations are calls, with `args` and `kwargs`.
inline constexpr llvm::StringLiteral kCallsFeature = "calls";

// One input error or warning. Text gives line and column (from 1; code points), JSON the byte
// offset.
struct InputError {
  std::string_view name; // of ir/README.md: `trace-key`, `trace-reference`, ...
  std::string message;   // lower case, no full stop, the observed fact first
  uint64_t offset = 0;
  uint32_t line = 0, col = 0; // 0 where only the offset is known
  std::string path;           // `ops[17].out[0].spec`; empty in text
};

struct ReadOptions {
  bool strict_schema = false;                                // unknown keys draw warnings
  std::function<void(uint64_t done, uint64_t all)> progress; // bytes, reported now and then
};

struct ReadResult {
  Program program;
  // At most kMaxInputErrors. If there is one, the program must not be used; if all of them are
  // `trace-truncated`, it is whole as far as it goes.
  std::vector<InputError> errors;
  std::vector<InputError> warnings; // `trace-newer`; unknown keys

  bool truncated() const;
};

// `bytes` stay the caller's. Neither reader throws, and neither reads outside `bytes`.
ReadResult read_text(llvm::StringRef bytes, const ReadOptions &options = {});
// A document, or a stream of one record per line.
ReadResult read_json(llvm::StringRef bytes, const ReadOptions &options = {});

// Canonical form; reading it gives an equal program. Ends in a line feed.
std::string print_text(const Program &program);
std::string print_json(const Program &program);
std::string print_jsonl(const Program &program);

// One row per format: adding one is a file and a row.
struct Format {
  std::string_view name;      // as in `fmt --to=NAME`
  std::string_view extension; // used when a directory is searched
  // By the first bytes; formats with the same first bytes have one reader. Which of these it is
  // says `is`; null: it is the only one.
  bool (*begins)(llvm::StringRef bytes);
  bool (*is)(llvm::StringRef bytes);
  ReadResult (*read)(llvm::StringRef bytes, const ReadOptions &options);
  std::string (*print)(const Program &program);
  bool by_hand = false; // people write it: it has comments, and lines that are worth quoting
};
llvm::ArrayRef<Format> formats();
// Sniffs, after decompression: the first byte that is not blank, and in JSON whether the first
// value is a whole document; what is nothing else is text.
const Format &format_of(llvm::StringRef bytes);
// Compressed bytes are unpacked first (ir/input/compression.h).
ReadResult read_program(llvm::StringRef bytes, const ReadOptions &options = {});

// Line and column (from 1, in code points) of a byte offset.
std::pair<uint32_t, uint32_t> line_and_column(llvm::StringRef bytes, uint64_t offset);

// Structure that no reader can break by itself: ids in range, operands defined before use, bodies
// contiguous. Empty if well formed; run after reading and after each pass that builds a program.
std::vector<InputError> verify(const Program &program);

} // namespace spmd::ir
