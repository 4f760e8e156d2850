// Changes of comment lines, gathered while cases run and written at the end (`--update`).
#pragma once

#include "llvm/ADT/StringRef.h"

#include <map>
#include <string>
#include <vector>

namespace spmd::tests {

class Edits {
public:
  // Columns [begin, end) of a line (from 1) become `text`.
  void replace(const std::string &path, unsigned line, size_t begin, size_t end, std::string text);
  // Adds a comment behind what stands on a line.
  void append(const std::string &path, unsigned line, std::string comment);
  // A whole file.
  void write(const std::string &path, std::string text) { files_[path] = std::move(text); }

  // Returns what could not be written. A line that is left empty goes.
  std::vector<std::string> apply() const;

private:
  struct Span {
    size_t begin, end;
    std::string text;
  };
  struct LineEdit {
    std::vector<Span> spans;
    std::string appended;
  };
  static std::string edited(llvm::StringRef line, const LineEdit &edit);
  std::map<std::string, std::map<unsigned, LineEdit>> lines_;
  std::map<std::string, std::string> files_;
};

} // namespace spmd::tests
