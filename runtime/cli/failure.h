// Why the ranks of a run cannot go on, as a finding at the step where they wait.
#pragma once

#include "runtime/launch/team.h"
#include "runtime/plan/plan.h"

#include "checker/finding.h"

namespace spmd::runtime {

// None for an error that a rank tells in its own words (TeamFailure::text). `needed`: memory of one
// rank.
std::optional<checker::Finding> finding_of(const TeamFailure &failure, const ir::Program &program,
                                           const Plan &plan, int64_t seconds,
                                           const std::string &needed);

} // namespace spmd::runtime
