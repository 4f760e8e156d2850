// Counts and joins; what was left once was left.
#include "runtime/judge/run/report.h"

#include "ir/support/store.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace spmd::runtime {

uint64_t RunReport::count(Verdict verdict) const {
  return static_cast<uint64_t>(
      llvm::count_if(claims, [&](const ClaimVerdict &claim) { return claim.verdict == verdict; }));
}

bool RunReport::refuted() const {
  return count(Verdict::Refuted) > 0 || llvm::any_of(findings, [](const checker::Finding &finding) {
           return finding.severity() == rules::Severity::Error;
         });
}

void RunReport::add_undecided(std::string reason) {
  if (!llvm::is_contained(undecided, reason))
    undecided.push_back(std::move(reason));
}

// Of several seeds: what was left once was left.
static void join_gradients(GradientReport &into, GradientReport more) {
  bool had = into.compared || !into.left.empty(), has = more.compared || !more.left.empty();
  if (!had) {
    into = std::move(more);
    return;
  }
  if (!has)
    return;
  for (GradientReport::NotCompared &left : more.left)
    if (llvm::none_of(into.left, [&](const auto &each) { return each.value == left.value; })) {
      into.left.push_back(std::move(left));
      into.compared -= into.compared > 0;
    }
}

void join_reports(RunReport &into, RunReport more) {
  llvm::DenseMap<uint64_t, size_t> known;
  for (size_t i = 0; i < into.claims.size(); ++i)
    known[key_of(into.claims[i])] = i;
  for (const ClaimVerdict &claim : more.claims) {
    auto [at, fresh] = known.try_emplace(key_of(claim), into.claims.size());
    if (fresh)
      into.claims.push_back(claim);
    else
      into.claims[at->second].verdict = joined(into.claims[at->second].verdict, claim.verdict);
  }
  auto is_error = [](const checker::Finding &finding) {
    return finding.severity() == rules::Severity::Error;
  };
  bool refuted = llvm::any_of(into.findings, is_error);
  for (checker::Finding &finding : more.findings)
    if (!refuted || !is_error(finding))
      into.findings.push_back(std::move(finding));
  for (std::string &reason : more.undecided)
    if (!llvm::is_contained(into.undecided, reason))
      into.undecided.push_back(std::move(reason));
  join_gradients(into.gradients, std::move(more.gradients));
  into.steps = std::max(into.steps, more.steps);
  into.judged += more.judged;
  into.digest = ir::mix(into.digest, more.digest);
}

} // namespace spmd::runtime
