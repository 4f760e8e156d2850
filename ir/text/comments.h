// Where comments stand in the lines of the text form, for what reads those lines without parsing.
#pragma once

#include "llvm/ADT/StringRef.h"

namespace spmd::ir {

// The offset of the `//` that begins a comment, strings skipped; npos if the line has none.
inline size_t comment_start(llvm::StringRef line) {
  bool quoted = false;
  for (size_t at = 0; at < line.size(); ++at) {
    if (quoted && line[at] == '\\')
      ++at;
    else if (line[at] == '"')
      quoted = !quoted;
    else if (!quoted && line.substr(at, 2) == "//")
      return at;
  }
  return llvm::StringRef::npos;
}

} // namespace spmd::ir
