// How a text begins and ends. LLVM gave its own functions for that other names in between.
#pragma once

#include "llvm/ADT/StringRef.h"

namespace spmd::ir {

inline bool starts_with(llvm::StringRef text, llvm::StringRef prefix) {
  return text.take_front(prefix.size()) == prefix;
}
inline bool ends_with(llvm::StringRef text, llvm::StringRef suffix) {
  return text.take_back(suffix.size()) == suffix;
}

} // namespace spmd::ir
