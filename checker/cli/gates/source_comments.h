// `# spmd: ignore[NAME, ...] reason` in the Python sources that a trace was recorded from: on the
// line of a finding, or alone above it.
#pragma once

#include "checker/render/source/source.h"

#include "llvm/ADT/StringRef.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace spmd::checker {

struct SourceComment {
  uint32_t line = 0, col = 0; // where it stands
  uint32_t about = 0;         // the line that it is about
  std::vector<std::string> findings;
  std::string reason;
  std::string problem; // not empty: it accepts nothing, and this is why
};
// All of a file, in order. Text in strings is no comment.
std::vector<SourceComment> read_comments(llvm::StringRef source);

// The comments of all sources of a run, and which of them were of use.
class SourceComments {
public:
  explicit SourceComments(SourceCache &sources) : sources_(sources) {}

  void read(const ir::Program &program);
  std::optional<Accepted> accept(const Report &report, const Diagnostic &diagnostic);
  // Adds those that accept nothing to the report of the first program that was made from the file.
  // A line that no program ran is left alone, and so is what was not to be reported.
  void add_findings(llvm::MutableArrayRef<Report> reports, const ReportOptions &options);

private:
  struct Known {
    SourceComment comment;
    bool used = false;
  };
  bool of_use(const std::string &path, const Known &known, const ReportOptions &options) const;

  SourceCache &sources_;
  std::map<std::string, std::vector<Known>> files_;
  std::set<std::pair<std::string, uint32_t>> lines_; // that programs ran
};

} // namespace spmd::checker
