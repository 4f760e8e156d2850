// The notations, by name: rules spell transitions in them, ir/dialect/dialect.h writes types.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <array>
#include <cstdint>
#include <string_view>

namespace spmd::ir {

enum class Dialect : uint8_t { Spmd, Jax, DTensor, LTensor };
inline constexpr std::array<std::string_view, 4> kDialectWords = {"spmd", "jax", "dtensor",
                                                                  "ltensor"};

inline constexpr std::string_view kOwnDialect = kDialectWords[0];

// The op that takes a whole tensor from one type to another; empty: there are no whole tensors.
inline constexpr std::array<std::string_view, 4> kRedistributeWords = {"redistribute", "reshard",
                                                                       "redistribute", ""};
constexpr std::string_view redistribute_word(Dialect dialect) {
  return kRedistributeWords[static_cast<size_t>(dialect)];
}
inline bool is_redistribute_word(llvm::StringRef op) {
  for (std::string_view word : kRedistributeWords)
    if (!word.empty() && op == llvm::StringRef(word))
      return true;
  return false;
}

} // namespace spmd::ir
