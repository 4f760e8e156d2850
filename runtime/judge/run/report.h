// What a judged run found, and the reports of several runs as one.
#pragma once

#include "runtime/judge/conformance.h"

#include "checker/finding.h"

namespace spmd::runtime {

// Gradients that the program was recorded with, against the derivative of its forward.
struct GradientReport {
  struct NotCompared {
    ir::ValueId value;
    std::string why;
  };
  bool recorded = false; // there are some
  uint64_t compared = 0;
  std::vector<ir::ValueId> zero; // of those that were compared: but for rounding
  std::vector<NotCompared> left; // that were not
};

struct RunReport {
  std::vector<ClaimVerdict> claims;
  std::vector<checker::Finding> findings; // at most one error; warnings besides
  std::vector<std::string> undecided;     // why, each reason once
  GradientReport gradients;
  uint64_t steps = 0, judged = 0;
  uint64_t digest = 0; // of the bits of all outputs on all ranks; 0: none were read

  uint64_t count(Verdict verdict) const;
  // A claim is refuted; on axes of one rank, which claim nothing, the finding alone says so.
  bool refuted() const;
  // Each reason once.
  void add_undecided(std::string reason);
};

// Joins the verdicts of two runs of one program, claim by claim: another tier, another seed.
void join_reports(RunReport &into, RunReport more);

// By what a claim is found again: its value and its axis.
constexpr uint64_t key_of(const ClaimVerdict &claim) {
  return uint64_t(claim.value.index) << 8 | claim.axis.index;
}

} // namespace spmd::runtime
