// Finds what would make a finding right: candidate edits, each applied in memory and re-checked
// before it is offered.
#pragma once

#include "checker/fix/fix.h"

#include <memory>

namespace spmd::checker {

struct FixState;

// Finds fixes for the findings of one completed check. Keeps what is costly between findings.
class FixFinder {
public:
  FixFinder(ir::Program &program, const CheckResult &result, const CheckOptions &options);
  ~FixFinder();

  // Value-preserving before value-changing, local extents kept before changed, then the cheapest
  // first. Each removes the finding and adds none.
  llvm::SmallVector<Fix, kMaxFixes> find(const Finding &finding);
  // Whether the last find() had any candidate to try; if so and it found nothing, none holds.
  bool tried() const;
  // Whether it was cut short: more might have been found, or something cheaper.
  bool cut() const;

private:
  std::unique_ptr<FixState> state_;
};

} // namespace spmd::checker
