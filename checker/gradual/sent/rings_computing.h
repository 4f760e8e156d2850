// An instruction whose operands have blocks of several ranks, by its equation. Internal to rings.cc
// and rings_*.cc.
#pragma once

#include "checker/gradual/sent/rings.h"

#include "rules/bind.h"
#include "rules/ops/op.h"

#include <bit>

namespace spmd::checker {

struct Rings::Computing {
  Rings &rings;
  Step &step;
  const rules::Application &app; // bound to the row
  const rules::OpDef &row;
  const rules::FactorMap &map;

  struct Place { // a part of a factor
    uint8_t factor;
    int64_t inner, extent;
  };
  struct Met { // a cut dimension
    Place at;
    unsigned back;
    size_t arg;
    bool mixed = false;
  };
  llvm::SmallVector<std::optional<Held>, 4> args = {};
  llvm::SmallVector<size_t, 4> read = {};
  llvm::SmallVector<Met, 4> met = {};
  llvm::SmallVector<const Met *, 2> summed = {}; // of these, what the result does not have
  std::optional<Held::Collected> collected = {}; // blocks of all ranks in one dimension
  std::optional<Place> across = {};              // its factor
  bool known = true;                             // of each operand, what it is
  bool whole = false; // the row does not go block by block along a cut dimension
  bool held = false;  // of some operand, more than its type

  // Whether it multiplies its operands, and sums over what the result does not have.
  bool multiplies() const;
  bool is(rules::Computes what) const { return row.computes == what; }
  void run();
  void take_operands();
  void align();
  void align_collected();
  bool in_any_order(uint32_t result) const;
  void meet(size_t arg, const Held::Cut &cut);
  bool lists(const Held &a, const Held &b) const;
  void judge_mixed(const Met &one, const Met &other);
  std::optional<int64_t> extent(uint8_t factor) const;
  std::optional<Place> locate(size_t arg, const Stretch &at) const;
  std::optional<Stretch> place(uint32_t result, const Place &at) const;
  std::optional<llvm::SmallVector<Held::Shift, 2>> shifts(size_t arg) const;
  std::optional<llvm::SmallVector<Held::Shift, 2>> shifts(size_t arg, uint32_t result) const;
  bool settle(llvm::SmallVector<Held::Shift, 2> &shifts, uint32_t result) const;

  Held loose(uint32_t result);
  Held of(uint32_t result, llvm::ArrayRef<Forms::Id> forms);
  bool sums(uint32_t result) const;
  std::optional<Held> moved(uint32_t result);
  std::optional<Held> alike(uint32_t result);
  std::optional<Held> added(uint32_t result);
  std::optional<Held> multiplied(uint32_t result);
  std::optional<Held> divided(uint32_t result);
  std::optional<Held> exponential(uint32_t result);
  std::optional<Held> logarithm(uint32_t result);
  std::optional<Held> chosen(uint32_t result);
  std::optional<Held> joined(uint32_t result);
  std::optional<Held> log_of_sum(uint32_t result);
  std::optional<Held> softmax(uint32_t result);
  std::optional<Held> log_of_sums(uint32_t result);
  std::optional<Held> content(uint32_t result);
  bool add_terms(Held &to, const Held &other, bool negated);
  void miss(size_t arg);
  void repeat(uint64_t twice);
  void judge_scales(const Held &a, const Held &b);
  Forms::Id form_with(size_t arg, Forms::Id form, uint32_t result);
  std::optional<Held> operand(size_t slot, uint32_t result);
};

// The block that a loop leaves out which ends a turn too early, or begins one too late. What leaves
// out another one, as attention to both neighbours of four ranks does, means to.
inline std::optional<unsigned> left_out(uint64_t blocks, unsigned ranks) {
  if (ranks < 3 || std::popcount(blocks) != int(ranks) - 1)
    return std::nullopt;
  const auto missing = static_cast<unsigned>(std::countr_one(blocks));
  return missing < 2 || missing == ranks - 1 ? std::optional(missing) : std::nullopt;
}

} // namespace spmd::checker
