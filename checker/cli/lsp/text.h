// Positions as editors count them: lines from 0, and UTF-16 units within a line. Files as they name
// them: URIs.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <string>
#include <vector>

namespace spmd::checker::lsp {

struct Position {
  uint32_t line = 0, character = 0;
};
struct Range {
  Position start, end;
};

// The text must outlive it.
class Lines {
public:
  explicit Lines(llvm::StringRef text);

  uint32_t count() const { return static_cast<uint32_t>(starts_.size()); }
  // Without its end; empty behind the last one.
  llvm::StringRef line(uint32_t index) const;
  uint64_t start(uint32_t index) const; // of a line; that of the end behind the last one
  // What lies behind a line, or behind the text, is at its end.
  uint64_t offset(Position position) const;
  Position position(uint64_t offset) const;
  // Of a line and a column in code points, both from 1; 0: the first.
  Position position(uint32_t line, uint32_t column) const;
  Range range(uint64_t begin, uint64_t end) const { return {position(begin), position(end)}; }
  // A line without the blanks around it.
  Range whole(uint32_t index) const;

private:
  llvm::StringRef text_;
  std::vector<uint64_t> starts_;
};

// Empty if it is no file of this machine.
std::string path_of_uri(llvm::StringRef uri);
std::string uri_of_path(llvm::StringRef path);

// Where the lines of a text are in another that was made from it: those before and after what
// changed. Lines count from 0; kNone: the line changed.
class LineMap {
public:
  static constexpr uint32_t kNone = ~0u;
  LineMap() = default; // every line is where it was
  LineMap(llvm::StringRef from, llvm::StringRef to);

  uint32_t to(uint32_t line) const { return mapped(line, from_count_, to_count_); }
  uint32_t from(uint32_t line) const { return mapped(line, to_count_, from_count_); }

private:
  uint32_t mapped(uint32_t line, uint32_t here, uint32_t there) const;

  uint32_t head_ = kNone, tail_ = 0, from_count_ = 0, to_count_ = 0; // lines that are equal
};

} // namespace spmd::checker::lsp
