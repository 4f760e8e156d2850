// Counts UTF-16 units over UTF-8. A byte that belongs to no character is a unit by itself.
#include "checker/cli/lsp/text.h"

#include "ir/support/strings.h"

#include "llvm/ADT/StringExtras.h"

#include <algorithm>

namespace spmd::checker::lsp {
namespace {

// Bytes of the character that the text begins with.
size_t bytes_of_character(llvm::StringRef text) {
  auto first = static_cast<unsigned char>(text.front());
  size_t wanted = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  size_t have = 1;
  while (have < wanted && have < text.size() &&
         (static_cast<unsigned char>(text[have]) & 0xC0) == 0x80)
    ++have;
  return have == wanted ? wanted : 1;
}
uint32_t units(size_t bytes) { return bytes == 4 ? 2 : 1; }

bool stands_in_uri(char c) { return llvm::isAlnum(c) || llvm::StringRef("-._~/").contains(c); }

} // namespace

Lines::Lines(llvm::StringRef text) : text_(text), starts_{0} {
  for (size_t at = text.find('\n'); at != llvm::StringRef::npos; at = text.find('\n', at + 1))
    starts_.push_back(at + 1);
}

uint64_t Lines::start(uint32_t index) const {
  return index < starts_.size() ? starts_[index] : text_.size();
}

llvm::StringRef Lines::line(uint32_t index) const {
  llvm::StringRef rest = text_.drop_front(start(index));
  return rest.take_until([](char byte) { return byte == '\n'; }).rtrim('\r');
}

uint64_t Lines::offset(Position position) const {
  llvm::StringRef rest = line(position.line);
  uint64_t at = start(position.line);
  for (uint32_t unit = 0; !rest.empty();) {
    size_t bytes = bytes_of_character(rest);
    unit += units(bytes);
    if (unit > position.character)
      break;
    at += bytes;
    rest = rest.drop_front(bytes);
  }
  return at;
}

Position Lines::position(uint64_t offset) const {
  offset = std::min<uint64_t>(offset, text_.size());
  auto after = std::upper_bound(starts_.begin(), starts_.end(), offset);
  Position found{static_cast<uint32_t>(after - starts_.begin() - 1), 0};
  llvm::StringRef rest = text_.slice(start(found.line), offset);
  while (!rest.empty()) {
    size_t bytes = bytes_of_character(rest);
    found.character += units(bytes);
    rest = rest.drop_front(bytes);
  }
  return found;
}

Position Lines::position(uint32_t number, uint32_t column) const {
  Position found{number ? number - 1 : 0, 0};
  llvm::StringRef rest = line(found.line);
  for (uint32_t point = 1; point < column && !rest.empty(); ++point) {
    size_t bytes = bytes_of_character(rest);
    found.character += units(bytes);
    rest = rest.drop_front(bytes);
  }
  return found;
}

Range Lines::whole(uint32_t index) const {
  llvm::StringRef all = line(index);
  uint64_t first = start(index) + (all.size() - all.ltrim().size());
  return range(first, std::max<uint64_t>(first, start(index) + all.rtrim().size()));
}

std::string path_of_uri(llvm::StringRef uri) {
  if (!uri.consume_front("file://"))
    return "";
  uri.consume_front("localhost");
  std::string path;
  for (size_t at = 0; at < uri.size(); ++at) {
    unsigned code = 0;
    if (uri[at] == '%' && !uri.substr(at + 1, 2).getAsInteger(16, code) && at + 2 < uri.size()) {
      path += static_cast<char>(code);
      at += 2;
    } else {
      path += uri[at];
    }
  }
  bool usable = ir::starts_with(path, "/") && path.find('\0') == std::string::npos;
  return usable ? path : "";
}

std::string uri_of_path(llvm::StringRef path) {
  std::string uri = "file://";
  for (char c : path)
    uri += stands_in_uri(c) ? std::string(1, c) : "%" + llvm::toHex(llvm::StringRef(&c, 1));
  return uri;
}

LineMap::LineMap(llvm::StringRef from, llvm::StringRef to) {
  if (from == to)
    return;
  Lines before(from), after(to);
  from_count_ = before.count(), to_count_ = after.count();
  uint32_t most = std::min(from_count_, to_count_);
  head_ = 0;
  while (head_ < most && before.line(head_) == after.line(head_))
    ++head_;
  while (tail_ < most - head_ &&
         before.line(from_count_ - 1 - tail_) == after.line(to_count_ - 1 - tail_))
    ++tail_;
}

uint32_t LineMap::mapped(uint32_t line, uint32_t here, uint32_t there) const {
  if (line < head_)
    return line;
  return line < here && line + tail_ >= here ? line - here + there : kNone;
}

} // namespace spmd::checker::lsp
