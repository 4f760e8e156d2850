// What typing leaves behind: findings and facts in the order of the instructions, of the main body
// and of each body that was typed for a call. Internal to the checker.
#pragma once

#include "checker/check.h"
#include "checker/walk/undecided/kind_variables.h"

#include "ir/support/store.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallVector.h"

namespace spmd::checker {

// What typing a run of instructions came to, in their order. A body that was typed for a call
// counts once, at the first call that is reached: loops try bodies whose findings nobody sees.
struct BodyResult {
  static constexpr uint32_t kNone = ~0u;
  struct Entry {
    std::optional<Finding> finding;
    uint32_t body = kNone; // that was run there, in place of a finding
  };
  std::vector<Entry> entries;
  std::vector<BodyInstance::Site> sites;
  std::vector<InferredSrcDst> inferred;
  std::vector<KindFact> open;
  CheckStats stats;
  bool refused = false; // an edit that is tried does not take the operands that it moves
};

// A body typed for one tuple of operand types and shapes, under one set of conditions.
struct TypedBody {
  std::vector<uint32_t> key;
  llvm::SmallVector<rules::TensorInfo, 2> results;
  BodyResult body_result;
  llvm::SmallVector<KindVariables::Row, 2> param_rows, result_rows;
  uint32_t first = 0;
  std::vector<rules::TensorInfo> values = {}; // from ValueId `first` on
};

// All of them, by what they were typed for.
class TypedBodies {
public:
  std::optional<uint32_t> find(llvm::ArrayRef<uint32_t> key);
  uint32_t add(TypedBody body); // that is not there
  size_t size() const { return bodies_.size(); }
  TypedBody &operator[](uint32_t index) { return bodies_[index]; }
  const TypedBody &operator[](uint32_t index) const { return bodies_[index]; }
  auto begin() { return bodies_.begin(); }
  auto end() { return bodies_.end(); }

private:
  std::vector<TypedBody> bodies_;
  ir::IndexTable table_;
};

// Puts results of bodies into one list, each body once.
class Collector {
public:
  Collector(const ir::Program &program, const TypedBodies &bodies);
  void add(BodyResult &body_result, CheckResult &into); // findings are moved out of `body_result`
  bool refused() const { return refused_; }

private:
  const ir::Program &program_;
  const TypedBodies &bodies_;
  std::vector<bool> seen_;
  bool refused_ = false;
  llvm::DenseSet<uint32_t> assumed_;   // spellings whose rule was reported as assumed
  llvm::DenseSet<uint64_t> questions_; // about symbols
};

} // namespace spmd::checker
