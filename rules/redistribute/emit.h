// Moves become calls of transitions.
#pragma once

#include "rules/redistribute/numeric_problem.h"

namespace spmd::rules::redistribute {

// The steps of these moves, from the source of the request to its target, with their types and
// prices.
void emit(ir::Program &program, const Request &request, const NumericProblem &posed,
          llvm::ArrayRef<Move> moves, Plan &plan);

} // namespace spmd::rules::redistribute
