// gzip and zstd around any encoding of a program, recognised by their magic bytes.
#pragma once

#include "ir/input/input.h"

#include <string>

namespace spmd::ir {

enum class Compression : uint8_t { None, Gzip, Zstd };

Compression compression_of(llvm::StringRef bytes);
// By the last extension of a file name: `.gz`, `.zst`.
Compression compression_named(llvm::StringRef path);

inline constexpr uint64_t kMaxUnpacked = uint64_t(1) << 30;

// What compressed bytes hold: several members or frames one after the other, as `cat` makes them.
struct Unpacked {
  std::string bytes;
  bool truncated = false; // the compressed bytes end early; `bytes` is what came before
  // `trace-encoding` (damaged), or `trace-limit`: more than 200 times the compressed size plus
  // 64 MiB, or than the limit. Offsets are those of the compressed bytes.
  std::vector<InputError> errors;
};
// `most`: bytes to be held at once.
Unpacked unpack(llvm::StringRef bytes, uint64_t most = kMaxUnpacked);
// The program in it; offsets of errors are those of the unpacked bytes.
ReadResult read_unpacked(const Unpacked &unpacked, const ReadOptions &options = {});
// None where the library has no memory left.
std::optional<std::string> pack(std::string bytes, Compression compression);

} // namespace spmd::ir
