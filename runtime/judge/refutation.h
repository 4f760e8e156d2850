// Refuted claims as findings, in the words of all others.
#pragma once

#include "runtime/judge/conformance.h"

namespace spmd::runtime {

// What a finding says besides what was measured.
struct RunFacts {
  Tier tier = Tier::Real;
  uint64_t seed = 0;
  std::string rerun;  // the command line, up to the value that it stops at
  bool whole = false; // it takes the whole run to see it
};

// Where a value is made, or declared.
checker::Place place_of(const ir::Program &program, ir::ValueId value);

checker::Finding finding_of(const ir::Program &program, const Observed &observed,
                            const Refuted &refuted, const RunFacts &facts);
// What was refuted after a finding, reported with it. Names are those of values.
void add_later_values(checker::Finding &finding, llvm::ArrayRef<std::string> later);

} // namespace spmd::runtime
