// What every fuzz target asks of a program that was read: it is well formed, it prints as something
// that reads, and what was read again prints the same.
#pragma once

#include "ir/input/input.h"
#include "ir/support/check.h"

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

using Print = std::string (*)(const ir::Program &);
using Read = ir::ReadResult (*)(llvm::StringRef, const ir::ReadOptions &);

// `witness` prints both programs too: what `print` leaves out, it leaves out of its second print.
inline void round_trip(const ir::ReadResult &result, Print print, Read read, Print witness) {
  const ir::Program &program = result.program;
  std::string printed = print(program);
  ir::ReadResult again = read(printed, {});
  // An announced count that was missed is missed again.
  bool readable = again.errors.empty() || (result.truncated() && again.truncated());
  SPMD_CHECK(readable, "what was printed cannot be read");
  SPMD_CHECK(print(again.program) == printed, "the second print is another");
  // Each form has an order of its own for functions.
  bool same = program.functions.size() > 1 || witness(again.program) == witness(program);
  SPMD_CHECK(same, "printing loses part of the program");
}

} // namespace spmd::fuzz
