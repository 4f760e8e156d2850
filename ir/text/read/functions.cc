// The first use of each function is kept, to say where one is missing.
#include "ir/text/read/functions.h"

#include <fmt/core.h>

namespace spmd::ir {

StringId TextFunctionNames::function_name(const Token &token) {
  std::string text = token.text.str();
  if (token.quoted)
    text = unescaped(token).value_or("");
  if (text.empty())
    error(token, "trace-key", "a function has no name");
  return builder_.string("@" + text);
}

FunctionId TextFunctionNames::use_function(const Token &token) {
  FunctionId id = builder_.function(program_.strings[function_name(token)]);
  function_uses_.try_emplace(id.index, token);
  return id;
}

void TextFunctionNames::add_function(const Token &token, Function function) {
  llvm::StringRef name = program_.strings[function.name];
  FunctionId id = builder_.function(name);
  if (builder_.is_defined(id)) {
    error(token, "trace-duplicate",
          fmt::format("function `{}` is defined twice", std::string_view(name)));
    return;
  }
  program_.functions[id] = std::move(function);
  builder_.mark_defined(id);
}

// Each function that is used must be defined. That none calls itself is for verify() to say.
void TextFunctionNames::check_functions() {
  for (uint32_t i = 0; i < program_.functions.size(); ++i) {
    FunctionId id{i};
    if (builder_.is_defined(id))
      continue;
    llvm::SmallVector<llvm::StringRef, 8> known;
    for (uint32_t j = 0; j < program_.functions.size(); ++j)
      if (builder_.is_defined(FunctionId{j}))
        known.push_back(program_.strings[program_.functions[FunctionId{j}].name]);
    llvm::StringRef name = program_.strings[program_.functions[id].name];
    error(function_uses_.lookup(i), "trace-reference",
          fmt::format("no function `{}` is defined{}", std::string_view(name),
                      nearest_suffix(name, known)));
  }
}

} // namespace spmd::ir
