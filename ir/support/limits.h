// What a program may have at most, in any encoding (ir/README.md). Arithmetic on what it states
// stays within these, so that nothing overflows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spmd::ir {

inline constexpr unsigned kMaxNesting = 64;
inline constexpr size_t kMaxString = size_t(1) << 20;
inline constexpr uint64_t kMaxCount = uint64_t(1) << 31; // of ops, and of values
inline constexpr int64_t kMaxInteger = int64_t(1) << 53;

} // namespace spmd::ir
