// Scores a corpus of real bugs: pairs `<id>.buggy.spmd`, `<id>.fixed.spmd`, and controls.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace spmd::tests {

// What one class of entries came to.
struct ClassScore {
  std::string name;
  unsigned pairs = 0, caught = 0;
  unsigned controls = 0, clean = 0;
  unsigned false_alarms = 0; // findings on fixed programs and controls, or ahead of the named line
  unsigned wrong_types = 0;
};

struct Score {
  std::vector<ClassScore> classes;   // in order of their names; the sum of all last
  std::vector<std::string> problems; // one line each: what was missed, alarmed, or typed otherwise
};

// The classes are those of the tables in the folder's README (`| A01 | project | L | ...`).
Score score_corpus(llvm::StringRef folder);
std::string print(const Score &score);

} // namespace spmd::tests
