// What a program says in words of its values (`src`, `dst`, `partial`, the kind that is asserted),
// held against the data: whether a statement was false, whatever came of it.
#pragma once

#include "tests/soundness/judge.h"

namespace spmd::soundness {

// A value that becomes a pending sum without a word, as found by the checker.
struct Unstated {
  ir::ValueId value;
  ir::AxisSet axes;
};

// The first word that is false of the data, whatever the kinds on other axes may be; empty if none
// is. `execution` has run.
std::string false_word(ir::Program &program, Execution &execution,
                       llvm::ArrayRef<Unstated> unstated);

} // namespace spmd::soundness
