// `check --diff`: what the fixes make of a program that people wrote, as a patch.
#pragma once

#include "checker/cli/inputs/checked_input.h"

namespace spmd::checker {

struct Patch {
  std::string after;      // the program as it is then
  std::string text;       // a unified diff; empty: no fix is a change of the text
  unsigned fixed = 0;     // findings that it repairs
  unsigned remaining = 0; // that it leaves
};
// One fix after another, the first of each finding that keeps what is computed; each is checked
// again before the next is looked for.
Patch make_patch(const Input &input, const Options &options);

} // namespace spmd::checker
