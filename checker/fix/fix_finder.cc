// Candidates come from the transition table and from the finding's own arguments; what survives a
// re-check of everything that depends on the edit is offered. Prices: ring algorithms
// (checker/README.md).
#include "checker/fix/fix_finder.h"

#include "checker/fix/candidates.h"
#include "checker/fix/search.h"
#include "ir/support/arrays.h"

namespace spmd::checker {

FixFinder::FixFinder(ir::Program &program, const CheckResult &result, const CheckOptions &options)
    : state_(std::make_unique<FixState>(program, result, options)) {}
FixFinder::~FixFinder() = default;

bool FixFinder::tried() const { return state_->tried; }
bool FixFinder::cut() const { return state_->cut; }

llvm::SmallVector<const BodyInstance *, 4> FixState::typings_of(ir::InstId id) {
  for (const ir::Function &function : program.functions) {
    if (function.opaque || id.index < function.body.first.index ||
        id.index >= function.body.last.index)
      continue;
    uint32_t first = ~0u;
    for (const ir::FunctionParam &param : function.params)
      first = std::min(first, param.value.index);
    for (ir::InstId i = function.body.first; i.index < function.body.last.index; ++i.index)
      if (program.insts[i].result_count > 0)
        first = std::min(first, program.insts[i].first_result.index);
    llvm::SmallVector<const BodyInstance *, 4> found;
    for (const BodyInstance &each : original.body_instances)
      if (!each.values.empty() && each.first == first)
        found.push_back(&each);
    return found;
  }
  return {};
}

llvm::SmallVector<Fix, kMaxFixes> FixFinder::find(const Finding &finding) {
  state_->tried = state_->cut = false;
  if (finding.place.form != Place::Form::Inst)
    return {};
  auto candidates = [&] {
    FixSearch search(state_->program, state_->original, state_->walk, finding);
    return Candidates(*state_, search).run();
  };
  const ir::Body &main = state_->program.main;
  if (finding.place.index >= main.first.index && finding.place.index < main.last.index)
    return candidates();
  // Calls with other operands may type the body otherwise, and be right.
  constexpr size_t kTypingsTried = 4;
  llvm::SmallVector<const BodyInstance *, 4> body_instances =
      state_->typings_of(finding.place.as_inst());
  for (const BodyInstance *typing : ir::as_array(body_instances).take_front(kTypingsTried)) {
    state_->look_at(*typing);
    if (llvm::SmallVector<Fix, kMaxFixes> found = candidates(); !found.empty())
      return found;
  }
  return {};
}

} // namespace spmd::checker
