// A fix as changes of the program's own text, where people write that text.
#pragma once

#include "checker/fix/fix.h"

#include "llvm/ADT/StringRef.h"

#include <vector>

namespace spmd::checker {

struct TextEdit {
  uint64_t offset = 0, length = 0; // bytes of the input that go
  std::string text;                // what stands there instead
};

// In order, none over another. Empty where the program is a recording, or where the fix is more
// than lines before an instruction, other attributes of it, or other operands.
std::vector<TextEdit> text_edits(ir::Program &program, llvm::StringRef bytes, const Fix &fix);
std::string apply_edits(llvm::StringRef bytes, const std::vector<TextEdit> &edits);

} // namespace spmd::checker
