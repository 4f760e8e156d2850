// The words of collectives with unstated words, ready to be written into the program.
#pragma once

#include "checker/check.h"

#include "llvm/ADT/SmallVector.h"

#include <string>

namespace spmd::checker {

// One collective that left words out.
struct Annotation {
  ir::InstId inst;
  ir::AttrsId attrs; // its attributes with all words that can be stated
  std::string line;  // canonical text of the instruction with them
  // What was taken, per set of axes with equal kinds; the first one in CheckResult::inferred first.
  llvm::SmallVector<InferredSrcDst, 1> words;
};

// In the order in which they were met. `program` is only interned into.
std::vector<Annotation> annotate(ir::Program &program, const CheckResult &result);

// True if the operand is V where the call sums, and is read as addends: reinterpret(V, P). No `src`
// says that; it is left out.
bool read_as_addends(const ir::Program &program, const InferredSrcDst &at);

// How many collectives have an `dst` that no use decides, although a gradient passes.
uint64_t undecided_dst_count(const CheckResult &result);

} // namespace spmd::checker
