// Norms that count what all ranks have once per rank.
#pragma once

#include "checker/check.h"

namespace spmd::checker {

// The root of a sum over ranks of squares, some of which all ranks of an axis have alike, such as
// those of gradients that were averaged before: they are counted as often as there are ranks. One
// finding per sum.
void judge_counted_norms(ir::Program &program, CheckResult &result);

} // namespace spmd::checker
