// What the search works on: numbers instead of types and symbols.
#pragma once

#include "rules/redistribute/request.h"
#include "rules/redistribute/search/search.h"

namespace spmd::rules::redistribute {

// A request as a problem of numbers: an extent with symbols stands as the largest number known to
// divide it, the size of an axis as ir::assumed_ranks() has it.
struct NumericProblem {
  Problem problem;
  llvm::SmallVector<ir::AxisId, 6> axes; // of the mesh, per axis of the problem
};
NumericProblem to_numeric_problem(ir::Program &program, const Request &request,
                                  const Topology &topology);

} // namespace spmd::rules::redistribute
