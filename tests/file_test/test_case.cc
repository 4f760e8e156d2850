// Finds programs: by extension among files, by fences within Markdown files.
#include "tests/file_test/test_case.h"

#include "ir/support/strings.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include <fmt/format.h>

#include <algorithm>

namespace spmd::tests {
namespace {

bool is_json(llvm::StringRef path) {
  return ir::ends_with(path, ".spmd.json") || ir::ends_with(path, ".spmd.jsonl");
}
bool is_markdown(llvm::StringRef path) { return ir::ends_with(path, ".md"); }
bool is_case(llvm::StringRef path) {
  return ir::ends_with(path, ".spmd") || is_json(path) || is_markdown(path);
}

bool is_searched(llvm::StringRef folder) {
  llvm::StringRef name = llvm::sys::path::filename(folder);
  return !ir::starts_with(name, ".") && !ir::starts_with(name, "build") && name != "node_modules";
}

void search(llvm::StringRef folder, std::vector<std::string> &files) {
  std::error_code error;
  llvm::sys::fs::recursive_directory_iterator at(folder, error), end;
  while (!error && at != end) {
    std::string path = at->path();
    bool directory = at->type() == llvm::sys::fs::file_type::directory_file;
    if (directory && !is_searched(path))
      at.no_push();
    if (!directory && is_case(path))
      files.push_back(llvm::sys::path::remove_leading_dotslash(path).str());
    at.increment(error);
  }
}

// The number of backquotes that open a fence, 0 if the line is none; `info` is the word after them.
unsigned fence(llvm::StringRef line, llvm::StringRef &info) {
  line = line.ltrim(' ');
  size_t ticks = line.find_first_not_of('`');
  ticks = ticks == llvm::StringRef::npos ? line.size() : ticks;
  info = line.drop_front(ticks).trim();
  return ticks >= 3 && !info.contains('`') ? static_cast<unsigned>(ticks) : 0;
}

// All blocks fenced as `spmd`. A longer fence hides what is inside it.
void add_blocks(const std::string &path, llvm::StringRef text, std::vector<TestCase> &cases) {
  unsigned open = 0, line_number = 0;
  TestCase *block = nullptr;
  for (llvm::StringRef line : lines_of(text)) {
    ++line_number;
    llvm::StringRef info;
    unsigned ticks = fence(line, info);
    if (open != 0 && ticks >= open && info.empty()) {
      open = 0;
      block = nullptr;
    } else if (open == 0 && ticks != 0) {
      open = ticks;
      if (info == "spmd")
        block = &cases.emplace_back(TestCase{TestCase::Form::Block, path, line_number, ""});
    } else if (block) {
      block->text.append(line.data(), line.size());
      block->text += '\n';
    }
  }
}

void add_cases(const std::string &path, FoundCases &found) {
  std::string error, text = read_file(path, error);
  if (!error.empty())
    found.errors.push_back(error);
  else if (is_markdown(path))
    add_blocks(path, text, found.cases);
  else
    found.cases.push_back(
        {is_json(path) ? TestCase::Form::Json : TestCase::Form::File, path, 0, text});
}

} // namespace

std::string TestCase::place(unsigned line) const {
  return fmt::format("{}:{}", path, lines_before + line);
}

std::string TestCase::name() const { return form == Form::Block ? place(1) : path; }

FoundCases find_cases(llvm::ArrayRef<std::string> paths) {
  FoundCases found;
  std::vector<std::string> files;
  for (const std::string &path : paths) {
    if (llvm::sys::fs::is_directory(path))
      search(path, files);
    else
      files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  for (const std::string &file : files)
    add_cases(file, found);
  return found;
}

std::string read_file(llvm::StringRef path, std::string &error) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (buffer)
    return (*buffer)->getBuffer().str();
  error = fmt::format("{}: {}", path.str(), buffer.getError().message());
  return "";
}

std::vector<llvm::StringRef> lines_of(llvm::StringRef text) {
  std::vector<llvm::StringRef> lines;
  while (!text.empty()) {
    auto [line, rest] = text.split('\n');
    lines.push_back(line);
    text = rest;
  }
  return lines;
}

} // namespace spmd::tests
