// A fix as changes of the program's own text, where people write that text.
#pragma once

#include "checker/fix/fix.h"

#include "llvm/ADT/StringRef.h"

#include <optional>
#include <utility>
#include <vector>

namespace spmd::checker {

struct TextEdit {
  uint64_t offset = 0, length = 0; // bytes of the input that go
  std::string text;                // what stands there instead
};

// Other statements that compute the same.
struct Rewrite {
  // What stands in the place of instructions of the main body; empty: nothing.
  std::vector<std::pair<ir::InstId, std::string>> statements;
  // A value that has the name of another one from there on.
  std::optional<std::pair<ir::ValueId, ir::ValueId>> renamed;
  // The one instruction that moves behind what makes its operand.
  std::optional<ir::InstId> moved;
};
// The same program in another text, whose main body begins elsewhere among the instructions.
std::vector<TextEdit> rewrite_edits(const ir::Program &program, llvm::StringRef bytes,
                                    const Rewrite &rewrite);

// In order, none over another. Empty where the program is a recording, or where the fix is more
// than lines before an instruction, other attributes of it, or other operands.
std::vector<TextEdit> text_edits(ir::Program &program, llvm::StringRef bytes, const Fix &fix);
std::string apply_edits(llvm::StringRef bytes, const std::vector<TextEdit> &edits);

} // namespace spmd::checker
