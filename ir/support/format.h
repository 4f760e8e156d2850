// LLVM's strings as arguments of fmt.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <fmt/format.h>

template <> struct fmt::formatter<llvm::StringRef> : fmt::formatter<fmt::string_view> {
  auto format(llvm::StringRef text, fmt::format_context &context) const {
    return fmt::formatter<fmt::string_view>::format({text.data(), text.size()}, context);
  }
};
