// Reads headers as HTTP writes them: lines that end in CR LF, and an empty one.
#include "checker/cli/lsp/wire.h"

#include "ir/support/strings.h"

#include "llvm/ADT/SmallVector.h"

#include <fmt/format.h>

namespace spmd::checker::lsp {
namespace {

constexpr size_t kMostHeader = 4096;
constexpr llvm::StringRef kEnd = "\r\n\r\n";

} // namespace

bool MessageReader::read_header() {
  llvm::StringRef bytes = bytes_;
  size_t end = bytes.take_front(kMostHeader).find(kEnd);
  if (end == llvm::StringRef::npos) {
    if (bytes.size() >= kMostHeader)
      problem_ = fmt::format("no message header ends within {} bytes", kMostHeader);
    return false;
  }
  llvm::SmallVector<llvm::StringRef, 4> lines;
  bytes.take_front(end).split(lines, "\r\n");
  for (llvm::StringRef line : lines) {
    auto [name, value] = line.split(':');
    if (!name.trim().equals_insensitive("content-length"))
      continue;
    uint64_t length = 0;
    if (value.trim().getAsInteger(10, length))
      problem_ = fmt::format("Content-Length is not a number that fits: `{}`", value.trim().str());
    else if (length > most_)
      problem_ =
          fmt::format("a message of {} bytes is announced, --max-input allows {}", length, most_);
    else if (length_)
      problem_ = "a message header has two lengths";
    length_ = length;
  }
  if (problem_.empty() && !length_)
    problem_ = "a message header has no Content-Length";
  bytes_.erase(0, end + kEnd.size());
  return problem_.empty();
}

std::optional<std::string> MessageReader::next() {
  if (!problem_.empty() || (!length_ && !read_header()) || bytes_.size() < *length_)
    return std::nullopt;
  std::string message = bytes_.substr(0, *length_);
  bytes_.erase(0, *length_);
  length_.reset();
  return message;
}

std::string framed(llvm::StringRef message) {
  return fmt::format("Content-Length: {}\r\n\r\n{}", message.size(), message.str());
}

} // namespace spmd::checker::lsp
