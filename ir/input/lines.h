// Lines and columns of an input. They are indexed when one is first asked for: of a program without
// findings none may be, and a trace is long.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace spmd::ir {

class InputLines {
public:
  InputLines() = default;
  explicit InputLines(llvm::StringRef bytes) : bytes_(bytes) {}

  // Line and column of a byte, from 1; columns count code points. Beyond the end: of the end.
  std::pair<uint32_t, uint32_t> at(uint64_t offset) const;
  // A line without its end, from 1; it has to be there.
  llvm::StringRef line(uint32_t number) const;

private:
  void index() const;

  llvm::StringRef bytes_;
  mutable std::vector<uint64_t> starts_; // byte offsets of lines; empty: not indexed
  // Columns at some offsets within long lines: a trace may be a single one.
  mutable std::vector<std::pair<uint64_t, uint32_t>> columns_;
};

} // namespace spmd::ir
