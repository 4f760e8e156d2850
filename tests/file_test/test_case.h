// Programs under test, and where they are found: `.spmd` files, fenced blocks of Markdown files,
// traces in JSON.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace spmd::tests {

struct TestCase {
  enum class Form : uint8_t { File, Block, Json };
  Form form = Form::File;
  std::string path;          // of the file
  unsigned lines_before = 0; // lines of the file before the text
  std::string text;

  // `path:line` in the file, of a line of the text (from 1).
  std::string place(unsigned line) const;
  // What the case is called: the path, of a block with the line where it begins.
  std::string name() const;
};

struct FoundCases {
  std::vector<TestCase> cases;     // by path, then by line
  std::vector<std::string> errors; // what could not be read
};

// Files are taken as they are; folders are searched, apart from hidden and build folders.
FoundCases find_cases(llvm::ArrayRef<std::string> paths);

// None of the text of a file; empty `error` if it was read.
std::string read_file(llvm::StringRef path, std::string &error);

// Lines without their line feeds.
std::vector<llvm::StringRef> lines_of(llvm::StringRef text);

} // namespace spmd::tests
