// Names, keys, numbers and axes as the text has them: bare where they can be, else in quotes.
#pragma once

#include "ir/program.h"

#include <string>

namespace spmd::ir {

class TextWords {
public:
  explicit TextWords(const Program &program) : program_(program) {}

  std::string op_name(llvm::StringRef name) const;
  std::string name(StringId id) const { return name(program_.strings[id]); }
  std::string name(llvm::StringRef text) const;
  std::string function_name(const Function &function) const; // with its `@`
  // Of an attribute: keys of the statement itself are bare, so one of that name is not.
  std::string key(llvm::StringRef key) const;
  std::string finding(StringId id) const;
  std::string quoted(StringId id) const;
  std::string axes(const AxisRefs &refs) const;
  std::string axes(MeshId mesh, AxisSet set) const;
  // ` at FILE:LINE ... in SCOPE`; empty for no location.
  std::string where(LocId loc) const;
  std::string frames(FrameId id) const; // innermost first

private:
  const Program &program_;
};

inline constexpr std::string_view kNull = "null"; // a type or a value that says nothing

// Shortest text that reads back as the same number and as no integer.
std::string print_number(double number);
// Parts with a separator between them.
std::string joined(llvm::ArrayRef<std::string> parts, std::string_view separator = ", ");

} // namespace spmd::ir
