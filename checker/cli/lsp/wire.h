// Messages between an editor and `spmdlint lsp`: a header with the length of what follows, then
// JSON. What arrives is not trusted: no memory is taken for a length that is only announced.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>
#include <string>

namespace spmd::checker::lsp {

class MessageReader {
public:
  explicit MessageReader(uint64_t most) : most_(most) {}

  void feed(llvm::StringRef bytes) { bytes_.append(bytes.data(), bytes.size()); }
  // The next whole message. None: more bytes are needed, or the stream is broken.
  std::optional<std::string> next();
  // Empty, or why no message can follow: where a header is wrong, nobody knows where the next one
  // begins.
  const std::string &problem() const { return problem_; }
  // Whether what was fed ends between two messages.
  bool between_messages() const { return !length_ && bytes_.empty(); }

private:
  bool read_header();

  uint64_t most_;
  std::string bytes_;
  std::optional<uint64_t> length_; // of the message whose header was read
  std::string problem_;
};

// A message with its header.
std::string framed(llvm::StringRef message);

} // namespace spmd::checker::lsp
