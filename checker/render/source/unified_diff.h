// The difference of two texts, as `diff -u` prints it.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <string>

namespace spmd::checker {

// The lines that differ, with three around them; empty if none do.
std::string unified_diff(llvm::StringRef path, llvm::StringRef before, llvm::StringRef after);

} // namespace spmd::checker
