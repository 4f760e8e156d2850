// Findings that were there before: of a baseline, or of the JSON output of an earlier run. They are
// recognised by fingerprints, which stay where lines move and values are renamed, and are counted.
#pragma once

#include "checker/report/report.h"

#include <map>
#include <string>
#include <vector>

namespace spmd::checker {

class KnownFindings {
public:
  // Adds what a file holds; `output`: it is one of --format=json. Empty, or what is wrong with it.
  std::string read(const std::string &path, bool output);
  // The finding, as far as it is known; each known place is one once.
  std::optional<Accepted> accept(const Report &report, const Diagnostic &diagnostic);

  // Of all that was asked for so far.
  struct Counts {
    uint64_t known = 0, moved = 0, fresh = 0; // places
    uint64_t fixed = 0;                       // of the file, not met
  };
  Counts counts() const;

  // A baseline of the findings of these reports that nothing else accepts. `only_known`: without
  // what is new.
  static std::string baseline_of(llvm::ArrayRef<Report> reports, bool only_known);

private:
  struct Entry {
    uint64_t left = 0;
    std::string place;
  };
  std::map<std::string, Entry> entries_;
  Counts counts_;
};

} // namespace spmd::checker
