// Names of functions. One may be used before it is defined; what is left undefined at the end is
// an error.
#pragma once

#include "ir/text/read/cursor.h"

namespace spmd::ir {

class TextFunctionNames : TextCursor {
public:
  explicit TextFunctionNames(TextInput &input) : TextCursor(input) {}

  void add_function(const Token &token, Function function);
  FunctionId use_function(const Token &token);
  StringId function_name(const Token &token);
  void check_functions();

private:
  llvm::DenseMap<uint32_t, Token> function_uses_; // first use, by FunctionId
};

} // namespace spmd::ir
