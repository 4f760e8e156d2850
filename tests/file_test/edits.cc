// Rewrites lines of files in one pass per file.
#include "tests/file_test/edits.h"

#include "tests/file_test/test_case.h"

#include "llvm/Support/raw_ostream.h"

#include <fmt/format.h>

#include <algorithm>

namespace spmd::tests {
namespace {

void write_file(const std::string &path, llvm::StringRef text, std::vector<std::string> &errors) {
  std::error_code error;
  llvm::raw_fd_ostream out(path, error);
  if (!error)
    out << text;
  if (error)
    errors.push_back(fmt::format("{}: {}", path, error.message()));
}

} // namespace

void Edits::replace(const std::string &path, unsigned line, size_t begin, size_t end,
                    std::string text) {
  lines_[path][line].spans.push_back({begin, end, std::move(text)});
}

void Edits::append(const std::string &path, unsigned line, std::string comment) {
  lines_[path][line].appended += " " + std::move(comment);
}

std::string Edits::edited(llvm::StringRef line, const LineEdit &edit) {
  std::string out = line.str();
  std::vector<Span> spans = edit.spans;
  std::sort(spans.begin(), spans.end(),
            [](const Span &a, const Span &b) { return a.begin > b.begin; });
  for (const Span &span : spans)
    out.replace(span.begin, span.end - span.begin, span.text);
  return llvm::StringRef(out).rtrim().str() + edit.appended;
}

std::vector<std::string> Edits::apply() const {
  std::vector<std::string> errors;
  for (const auto &[path, edits] : lines_) {
    std::string text, old = read_file(path, text);
    text.clear();
    unsigned number = 0;
    for (llvm::StringRef line : lines_of(old)) {
      auto edit = edits.find(++number);
      std::string made = edit == edits.end() ? line.str() : edited(line, edit->second);
      if (edit == edits.end() || !llvm::StringRef(made).trim().empty())
        text += made + "\n";
    }
    write_file(path, text, errors);
  }
  for (const auto &[path, text] : files_)
    write_file(path, text, errors);
  return errors;
}

} // namespace spmd::tests
