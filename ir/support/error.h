// Errors that are a sentence and nothing else.
#pragma once

#include "llvm/Support/Error.h"

#include <string>

namespace spmd {

inline llvm::Error make_error(const std::string &text) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), text);
}

} // namespace spmd
