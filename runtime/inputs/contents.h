// What the numbers of a program's inputs must be like so that the program makes sense of them: indices
// within range, positive numbers under a logarithm, weights that keep sums of order 1. Read off the
// uses, backwards from where a value is used to where it enters.
#pragma once

#include "checker/checked_program.h"

#include <vector>

namespace spmd::runtime {

// Later forms are the stronger ones: of two uses the stronger counts.
enum class ContentForm : uint8_t {
  Free,     // any numbers of order 1, of both signs
  Nonzero,  // not near 0
  Distinct, // as few equal ones as may be
  Positive, // well above 0
  AboveOne,
  Unit,     // well inside of (0, 1)
  Sorted,   // ascending along the last dimension
  Definite, // symmetric in the last two dimensions, and well conditioned
  Truth,    // 0 or 1, both of them
  Index,    // whole numbers from 0 on, below `limit`
  Starts,   // ascending from 0, at most `limit`: where parts of that many elements begin
  Ends,     // ascending up to `limit`: where such parts end
};

struct Content {
  ContentForm form = ContentForm::Free;
  int64_t limit = 0;
  double factor = 1; // of Free: 1/sqrt(K) for what is multiplied into sums of K products
};

// Per parameter of the program.
std::vector<Content> contents_of(checker::CheckedProgram &program);

} // namespace spmd::runtime
