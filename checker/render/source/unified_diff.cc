// Texts are compared line by line.
#include "checker/render/source/unified_diff.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace spmd::checker {
namespace {

constexpr size_t kAround = 3;                 // lines of context
constexpr size_t kMostWork = size_t(1) << 24; // pairs of lines that are compared

using Lines = llvm::SmallVector<llvm::StringRef, 0>;

Lines lines_of(llvm::StringRef text) {
  Lines lines;
  while (!text.empty()) {
    size_t end = text.find('\n');
    lines.push_back(text.take_front(end == llvm::StringRef::npos ? text.size() : end + 1));
    text = text.drop_front(lines.back().size());
  }
  return lines;
}

// A line of the result: kept, taken out or put in.
struct Line {
  char sign;
  llvm::StringRef text;
};

// The middle, between what both begin and end with: a longest common subsequence; where that would
// be too much work, all of the old and all of the new lines.
void compare(llvm::ArrayRef<llvm::StringRef> a, llvm::ArrayRef<llvm::StringRef> b,
             std::vector<Line> &out) {
  size_t n = a.size(), m = b.size();
  std::vector<uint32_t> common; // of the rests from i and j on
  if (n * m <= kMostWork) {
    common.assign((n + 1) * (m + 1), 0);
    for (size_t i = n; i-- > 0;)
      for (size_t j = m; j-- > 0;)
        common[i * (m + 1) + j] =
            a[i] == b[j] ? common[(i + 1) * (m + 1) + j + 1] + 1
                         : std::max(common[(i + 1) * (m + 1) + j], common[i * (m + 1) + j + 1]);
  }
  size_t i = 0, j = 0;
  while (i < n || j < m) {
    if (i < n && j < m && !common.empty() && a[i] == b[j]) {
      out.push_back({' ', a[i]});
      ++i, ++j;
    } else if (j == m || (i < n && (common.empty() || common[(i + 1) * (m + 1) + j] >=
                                                          common[i * (m + 1) + j + 1]))) {
      out.push_back({'-', a[i++]});
    } else {
      out.push_back({'+', b[j++]});
    }
  }
}

std::string hunk(llvm::ArrayRef<Line> lines, size_t old_line, size_t new_line) {
  size_t removed = 0, added = 0;
  std::string text;
  for (const Line &line : lines) {
    removed += line.sign != '+', added += line.sign != '-';
    text += line.sign + line.text.str();
    if (line.text.empty() || line.text.back() != '\n')
      text += "\n\\ No newline at end of file\n";
  }
  return fmt::format("@@ -{},{} +{},{} @@\n{}", removed ? old_line : old_line - 1, removed,
                     added ? new_line : new_line - 1, added, text);
}

} // namespace

std::string unified_diff(llvm::StringRef path, llvm::StringRef before, llvm::StringRef after) {
  if (before == after)
    return "";
  Lines a = lines_of(before), b = lines_of(after);
  size_t head = 0, tail = 0;
  while (head < a.size() && head < b.size() && a[head] == b[head])
    ++head;
  while (tail < a.size() - head && tail < b.size() - head &&
         a[a.size() - 1 - tail] == b[b.size() - 1 - tail])
    ++tail;
  std::vector<Line> all;
  for (size_t i = 0; i < head; ++i)
    all.push_back({' ', a[i]});
  compare(llvm::ArrayRef<llvm::StringRef>(a).slice(head, a.size() - head - tail),
          llvm::ArrayRef<llvm::StringRef>(b).slice(head, b.size() - head - tail), all);
  for (size_t i = a.size() - tail; i < a.size(); ++i)
    all.push_back({' ', a[i]});
  std::string text = fmt::format("--- {}\n+++ {}\n", path.str(), path.str());
  size_t old_line = 1, new_line = 1;
  for (size_t at = 0; at < all.size();) {
    auto changed = [&](size_t i) { return i < all.size() && all[i].sign != ' '; };
    bool near = false;
    for (size_t i = at; i <= at + kAround; ++i)
      near |= changed(i);
    if (!near) {
      ++at, ++old_line, ++new_line;
      continue;
    }
    size_t end = at, quiet = 0; // to where as many lines stay as stand around two hunks
    while (end < all.size() && quiet <= 2 * kAround)
      quiet = all[end++].sign == ' ' ? quiet + 1 : 0;
    end -= quiet > kAround ? quiet - kAround : 0;
    llvm::ArrayRef<Line> lines = llvm::ArrayRef<Line>(all).slice(at, end - at);
    text += hunk(lines, old_line, new_line);
    for (const Line &line : lines)
      old_line += line.sign != '+', new_line += line.sign != '-';
    at = end;
  }
  return text;
}

} // namespace spmd::checker
