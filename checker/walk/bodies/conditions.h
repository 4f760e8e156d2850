// The conditions around the body that is being typed, as far as they differ between ranks. Internal
// to the checker.
#pragma once

#include "checker/walk/state.h"

namespace spmd::checker {

class Conditions {
public:
  explicit Conditions(WalkState &state) : state_(state), program_(state.program) {}

  // True if the condition differs between ranks and was not around already: pop() takes it away.
  bool push(const ir::Type &condition);
  void pop() { types_.pop_back(); }
  bool empty() const { return types_.empty(); }
  llvm::ArrayRef<ir::TypeId> types() const { return types_; }
  // Communication that only the ranks whose condition held would reach.
  void judge(ir::InstId id, const rules::Application &app);

private:
  WalkState &state_;
  ir::Program &program_;
  llvm::SmallVector<ir::TypeId, 2> types_;
};

} // namespace spmd::checker
