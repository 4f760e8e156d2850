// Options that take one word of several: their help, and which word was given. The words are a
// list, mostly those of an enumeration in its order.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>

namespace spmd::checker {

// Words as one text, made while this is compiled.
struct Joined {
  std::array<char, 256> text{};
  size_t size = 0;
  constexpr Joined(const auto &words, std::string_view between) {
    for (std::string_view word : words) {
      for (char c : size ? between : std::string_view())
        text[size++] = c;
      for (char c : word)
        text[size++] = c;
    }
  }
  constexpr operator std::string_view() const { return {text.data(), size}; }
};

// The words of a list as help shows them: `A|B|C`.
template <const auto &Words> inline constexpr Joined kOneOf{Words, "|"};

// Empty, or what is wrong with the word. `chosen`: its position, as a number or an enumerator.
template <class Enum> std::string choose(llvm::StringRef value, const auto &words, Enum &chosen) {
  std::string known;
  for (size_t i = 0; i < std::size(words); ++i) {
    if (value == llvm::StringRef(words[i].data(), words[i].size())) {
      chosen = static_cast<Enum>(i);
      return "";
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", words[i]);
  }
  return fmt::format("`{}` is none of {}", value.str(), known);
}

} // namespace spmd::checker
