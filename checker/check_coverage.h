// How much of a program a check judged. A run without findings says nothing of what no rule looked
// at, so that part is counted and printed.
#pragma once

#include "checker/check.h"

#include <string>

namespace spmd::checker {

struct CheckCoverage {
  uint64_t values = 0;         // declared or made, but for those of code that nothing calls
  uint64_t unknown_values = 0; // of them, with an unknown kind on some axis
  uint64_t unchecked_ops = 0;  // inside `with { check = false }`
  uint64_t uncalled_ops = 0;   // in functions that nothing calls
  uint64_t typed_ops = 0;      // with a rule, and checked
  bool boundary =
      false; // it states outputs or contracts of gradients, which are compared without an op
  bool one_rank = false; // no mesh has an axis of more than one rank: every kind is the same there

  // Of programs that were judged without declarations: of how many parameters that the program
  // trains, or, where it trains none, of how many of its results all is known that makes them, by
  // the name of the axis; where the first of what the others are made of was lost.
  struct Proof {
    std::string axis;
    uint64_t proved = 0;
    std::optional<Place> lost; // none: nowhere
  };
  uint64_t trained = 0;
  uint64_t confirmed = 0; // parameters whose gradient was measured, and is right
  uint64_t results = 0;   // of a program that trains nothing; else 0
  std::vector<Proof> proofs;

  bool anything() const { return typed_ops > 0 || boundary; }
};

// On which axes everything is known that makes a value, such as what a parameter is after a step.
ir::AxisSet proved_axes(const CheckResult &result, ir::ValueId value);
CheckCoverage check_coverage(const ir::Program &program, const CheckResult &result);
// Why nothing was judged: `the program has no ops`.
std::string why_nothing(const CheckCoverage &judged, const CheckStats &stats);

} // namespace spmd::checker
