// Offsets of all lines, and columns at every few thousand bytes of long ones.
#include "ir/input/lines.h"

#include "ir/input/input.h"

#include <algorithm>
#include <tuple>

namespace spmd::ir {

constexpr uint64_t kColumnStep = 1 << 12;

void InputLines::index() const {
  if (!starts_.empty())
    return;
  starts_.push_back(0);
  for (size_t at = bytes_.find('\n'); at != llvm::StringRef::npos; at = bytes_.find('\n', at + 1))
    starts_.push_back(at + 1);
  for (size_t line = 0; line < starts_.size(); ++line) {
    uint64_t at = starts_[line];
    uint64_t end = line + 1 < starts_.size() ? starts_[line + 1] : bytes_.size();
    for (uint32_t column = 1; at + kColumnStep < end; at += kColumnStep) {
      llvm::StringRef part = bytes_.slice(at, at + kColumnStep);
      column += line_and_column(part, part.size()).second - 1;
      columns_.push_back({at + kColumnStep, column});
    }
  }
}

std::pair<uint32_t, uint32_t> InputLines::at(uint64_t offset) const {
  index();
  offset = std::min<uint64_t>(offset, bytes_.size());
  auto after = std::upper_bound(starts_.begin(), starts_.end(), offset);
  uint64_t start = *(after - 1);
  const auto line = static_cast<uint32_t>(after - starts_.begin());
  uint32_t columns = 1;
  auto mark = std::upper_bound(columns_.begin(), columns_.end(), std::pair(offset, ~uint32_t(0)));
  if (mark != columns_.begin() && (mark - 1)->first > start)
    std::tie(start, columns) = *(mark - 1);
  const llvm::StringRef before = bytes_.slice(start, offset);
  return {line, columns - 1 + line_and_column(before, before.size()).second};
}

llvm::StringRef InputLines::line(uint32_t number) const {
  index();
  llvm::StringRef rest = bytes_.drop_front(starts_[number - 1]);
  return rest.take_until([](char byte) { return byte == '\n'; }).rtrim('\r');
}

} // namespace spmd::ir
