// What every fuzz target asks of a program that was read: it is well formed, it prints as something
// that reads, and what was read again prints the same in both encodings.
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

inline void round_trip(const ir::ReadResult &result, std::string (*print)(const ir::Program &),
                       ir::ReadResult (*read)(llvm::StringRef, const ir::ReadOptions &)) {
  const ir::Program &program = result.program;
  std::string printed = print(program);
  ir::ReadResult again = read(printed, {});
  // An announced count that was missed is missed again.
  bool readable = again.errors.empty() || (result.truncated() && again.truncated());
  SPMD_CHECK(readable, "what was printed cannot be read");
  SPMD_CHECK(print(again.program) == printed, "the second print is another");
  // What a printer leaves out, it leaves out of its second print too. Each has an order of its own
  // for functions, which the other does not know.
  if (program.functions.size() > 1)
    return;
  SPMD_CHECK(ir::print_json(again.program) == ir::print_json(program), "JSON says another thing");
  SPMD_CHECK(ir::print_text(again.program) == ir::print_text(program), "text says another thing");
}

} // namespace spmd::fuzz
