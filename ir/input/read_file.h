// Bytes of files: bounded, and safe against files that are none, that never end, or that change
// while they are read.
#pragma once

#include "llvm/Support/MemoryBuffer.h"

#include <cstdint>
#include <memory>
#include <string>
#include <system_error>

namespace spmd::ir {

// Of one input, after decompression too (--max-input).
inline constexpr uint64_t kMaxInput = uint64_t(1) << 30;

// What the system says of an error, as part of a sentence.
std::string describe_system_error(std::error_code error);

// Regular files are mapped, unless they are small; pipes and devices are read to their end. Null,
// with the reason in `problem`, if that cannot be done or if there are more than `most` bytes. `-`
// is stdin.
std::unique_ptr<llvm::MemoryBuffer> read_file(const std::string &path, std::string &problem,
                                              uint64_t most = kMaxInput);

// From now on pages that a mapped file has lost read as zeros, and are noted. Without it they end
// the process (SIGBUS).
void guard_mapped_files();
// Whether that happened: what was read since is not to be trusted.
bool mapped_file_was_truncated();

} // namespace spmd::ir
