// The notations, by name: rules spell transitions in them, ir/dialect/dialect.h writes types.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace spmd::ir {

enum class Dialect : uint8_t { Spmd, Jax, DTensor, LTensor };
inline constexpr std::array<std::string_view, 4> kDialectWords = {"spmd", "jax", "dtensor",
                                                                  "ltensor"};

inline constexpr std::string_view kOwnDialect = kDialectWords[0];

} // namespace spmd::ir
