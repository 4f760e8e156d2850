// The last recording of a script, shown in the Python sources that it was made from. Places of a
// source that has changed since are followed as far as its other lines tell; the rest is marked.
#pragma once

#include "checker/cli/gates/source_comments.h"
#include "checker/cli/inputs/checked_input.h"
#include "checker/cli/lsp/protocol.h"

#include "llvm/Support/Chrono.h"

#include <map>
#include <set>

namespace spmd::checker::lsp {

// A source of a recording: what was recorded, as far as it is known, and what there is now.
class Source {
public:
  // `recorded`: empty if no text is known that has the recorded hash.
  Source(std::optional<std::string> recorded, std::string now)
      : now_(std::move(now)), known_(recorded.has_value()), map_(recorded.value_or(now_), now_),
        lines_(now_) {}
  Source(const Source &) = delete;

  const Lines &lines() const { return lines_; }
  llvm::StringRef text() const { return now_; }
  // The recorded line, from 1, of a line that is shown, from 0; 0: it is none.
  uint32_t recorded_line(uint32_t shown) const;
  struct Shown {
    Range range;
    bool stale = false; // what stood there was changed
  };
  Shown shown(const SourcePlace &place) const;

private:
  std::string now_;
  bool known_;
  LineMap map_; // from what was recorded
  Lines lines_;
};

class Recording {
public:
  // Reads the traces again where they are others than before; whether they were.
  bool refresh(const Options &options, const std::string &root);

  // Paths of all sources that findings stand in.
  std::set<std::string> paths() const;
  bool knows(const std::string &path) const;
  // The text of a source that was recorded, if it is the one that is given or the one on disk.
  std::optional<std::string> recorded_text(const std::string &path, llvm::StringRef given) const;
  std::optional<std::string> path_of(const ir::Program &program, ir::FileId file) const;

  Json diagnostics(const std::string &path, const Source &source) const;
  std::optional<Json> hover(const std::string &path, const Source &source, Position position) const;
  // Where what the line takes was made.
  std::optional<Json> definition(const std::string &path, const Source &source,
                                 Position position) const;
  Json hints(const std::string &path, const Source &source, Range range) const;
  // The comments that accept the findings of a range.
  Json actions(const std::string &uri, const std::string &path, const Source &source,
               Range range) const;

  // What was wrong with the traces, to be told; forgets it.
  std::vector<std::string> take_problems() { return std::exchange(problems_, {}); }

private:
  struct Trace {
    std::unique_ptr<CheckedInput> checked;
    std::optional<Report> report;
    std::map<std::string, std::vector<ir::FileId>> files; // by their paths here
    // By file and line: the operations that stand there; then, those that were called from there.
    std::map<std::pair<uint32_t, uint32_t>, std::vector<ir::InstId>> at, below;
  };
  using Stamp = std::pair<std::string, llvm::sys::TimePoint<>>;

  std::vector<Stamp> find(const Options &options, const std::string &root) const;
  void read(const std::string &path, const Options &options);
  static void index(Trace &trace);
  std::vector<std::pair<const Trace *, ir::InstId>> operations(const std::string &path,
                                                               uint32_t line, bool called) const;
  Json related(const Trace &trace, const Diagnostic &diagnostic) const;

  std::vector<Stamp> stamps_;
  std::vector<Trace> traces_;
  std::optional<SourceCache> sources_;
  std::optional<SourceComments> comments_;
  std::vector<std::string> problems_;
};

} // namespace spmd::checker::lsp
