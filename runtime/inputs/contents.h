// What the numbers of a program's inputs must be like so that the program makes sense of them:
// indices within range, positive numbers under a logarithm, weights that keep sums of order 1. Read
// off the uses, backwards from where a value is used to where it enters.
#pragma once

#include "checker/checked_program.h"

#include "rules/ops/op.h"

#include <vector>

namespace spmd::runtime {

using ContentForm = rules::Values;

struct Content {
  ContentForm form = ContentForm::Free;
  int64_t limit = 0; // of Index, Starts and Ends
  double factor = 1; // of Free: 1/sqrt(K) for what is multiplied into sums of K products
};

// Per parameter of the program.
std::vector<Content> contents_of(checker::CheckedProgram &program);

} // namespace spmd::runtime
