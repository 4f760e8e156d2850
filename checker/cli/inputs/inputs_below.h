// The programs in a folder: every entry is either checked, or named with the reason why it is not.
#pragma once

#include <string>
#include <vector>

namespace spmd::checker {

struct InputsBelow {
  std::vector<std::string> files; // sorted; in folders below as well, links followed
  std::vector<std::string>
      problems;                   // `PATH: why`: what cannot be read, or that there is no program
  std::vector<std::string> notes; // `PATH: why`: links that lead back to a folder above them
};

// Files that an input format names by its extension. Entries that begin with a dot are left out.
InputsBelow inputs_below(const std::string &folder);

} // namespace spmd::checker
