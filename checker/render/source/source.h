// Lines of the user's source files: looked up below one folder only, compared with the hash that a
// trace states, and cut to what fits. Nothing that is read is executed or followed out of the
// folder.
#pragma once

#include "checker/report/report.h"

#include "llvm/Support/MemoryBuffer.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace spmd::checker {

struct SourceOptions {
  std::string root = ".";
  std::vector<std::pair<std::string, std::string>>
      path_map; // prefix as in the trace -> prefix here
};

class SourceCache {
public:
  explicit SourceCache(SourceOptions options) : options_(std::move(options)) {}

  // The line without its end; none if the file is not there, is not the one traced, or is too
  // short.
  std::optional<llvm::StringRef> line(const ir::Program &program, const SourcePlace &place);
  // The whole file; none if it is not there or not the one traced.
  std::optional<llvm::StringRef> contents(const ir::Program &program, ir::FileId file);
  // Where the file is; none if it is not below the root.
  std::optional<std::string> path_of(const ir::Program &program, ir::FileId file) const;
  // From the working directory, where it is below; else as the program states it.
  std::string shown_path(const ir::Program &program, ir::FileId file) const;
  // The file is there, but its hash is not the one that the trace states.
  bool changed(const ir::Program &program, ir::FileId file);

private:
  struct File {
    std::unique_ptr<llvm::MemoryBuffer> bytes; // null if it may not or cannot be read
    std::vector<size_t> line_starts;
    std::string sha256;
  };
  File &open(const std::string &path);
  std::optional<std::string> resolve(llvm::StringRef path) const;

  SourceOptions options_;
  std::map<std::string, File> files_;
};

// Whether these are the bytes of a file that was traced; true if the trace states no hash.
bool is_traced(const ir::Program &program, ir::FileId file, llvm::StringRef bytes);

// Adds a `source-changed` finding for each file that a shown place stands in and that changed since
// the trace.
void add_changed_sources(Report &report, SourceCache &sources);

// A line as it is shown, and the marks below it; columns count code points from 1, `end` is
// exclusive.
struct Excerpt {
  std::string line, marks;
};
Excerpt excerpt(llvm::StringRef line, unsigned col, unsigned end_col, unsigned width);

} // namespace spmd::checker
