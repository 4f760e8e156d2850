// Whether an instruction is like one that was typed already, and whether it may stand for those to
// come. Internal to the checker.
#pragma once

#include "checker/walk/state.h"
#include "checker/walk/undecided/undecided_kinds.h"

namespace spmd::checker {

class KnownInstructions {
public:
  KnownInstructions(WalkState &state, const UndecidedKinds &undecided)
      : state_(state), program_(state.program), undecided_(undecided) {}

  // The one that is like this; none if there is none, or if its place in the program matters.
  InstructionCache::Entry *find(const ir::Inst &inst);
  // Of the instruction that was looked for: what it writes, and whether results are marked as
  // gradients.
  llvm::ArrayRef<ir::ValueId> targets() const { return targets_; }
  bool has_gradients() const { return has_gradients_; }

  // While one is typed that was not found. What is reported from here on belongs to its rule.
  void count() {
    if (before_)
      before_ = counted();
  }
  // It depends on more than the key has.
  void forget() { before_.reset(); }
  // It is kept if it has no finding, and if neither its place nor which values its operands are had
  // a part in it.
  void keep(const ir::Inst &inst, const rules::ResolvedOp &op, const rules::Outcome &outcome);

private:
  // How many findings and facts there are, before an instruction and after it.
  struct Counts {
    size_t findings, words, facts;
    uint64_t silent;
    friend bool operator==(const Counts &, const Counts &) = default;
  };
  Counts counted() const {
    return {state_.body_result->entries.size(), state_.body_result->inferred.size(),
            state_.body_result->open.size(), state_.body_result->stats.silent};
  }
  bool make_key(const ir::Inst &inst);

  WalkState &state_;
  ir::Program &program_;
  const UndecidedKinds &undecided_;
  std::optional<Counts> before_; // the current instruction, as long as it may be kept
  llvm::SmallVector<ir::ValueId, 4> targets_;
  bool has_gradients_ = false;
};

} // namespace spmd::checker
