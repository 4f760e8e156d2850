// A fix as a change of the user's own script, where one line allows it.
#pragma once

#include "checker/render/source/source.h"

#include <optional>
#include <string>
#include <vector>

namespace spmd::checker {

struct SourceEdit {
  ir::FileId file;
  uint32_t line = 0;         // from 1
  std::string before, after; // of the line, which may become two
};
// The first fix of the finding that a script recorded from a framework can have where it makes the
// value: around the expression, or below an assignment of it. None where the value is made by
// several lines, is read by more than the fix is about, or where the source is not as it was
// traced.
std::optional<SourceEdit> source_edit(const Report &report, const Diagnostic &diagnostic,
                                      SourceCache &sources);

// The sources with the edits of all findings of a report, as unified diffs; findings whose edits
// meet those of others in a line are left for the next time. `count`: how many are in it.
std::string source_patch(const Report &report, SourceCache &sources, unsigned &count);

} // namespace spmd::checker
