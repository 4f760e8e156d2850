// What every fuzz target asks of a program that was read: it is well formed, it prints as something
// that reads, and the second print is the first.
#pragma once

#include "ir/check.h"
#include "ir/input.h"

#include <cstdint>

namespace spmd::fuzz {

inline llvm::StringRef bytes_of(const uint8_t *data, size_t size) {
  return {reinterpret_cast<const char *>(data), size};
}

// True if the program may be used.
inline bool is_sound(const ir::ReadResult &result) {
  SPMD_CHECK(result.errors.size() <= ir::kMaxInputErrors, "more errors than are reported");
  bool usable = result.errors.empty() || result.truncated();
  return usable && ir::verify(result.program).empty();
}

inline void round_trip(const ir::Program &program, std::string (*print)(const ir::Program &),
                       ir::ReadResult (*read)(llvm::StringRef, const ir::ReadOptions &)) {
  std::string printed = print(program);
  ir::ReadResult again = read(printed, {});
  SPMD_CHECK(again.errors.empty(), "what was printed cannot be read");
  SPMD_CHECK(print(again.program) == printed, "the second print is another");
}

} // namespace spmd::fuzz
