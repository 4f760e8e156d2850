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
  llvm::SmallVector<std::optional<RingValue>, 4> args = {};
  llvm::SmallVector<size_t, 4> read = {};
  llvm::SmallVector<Met, 4> met = {};
  llvm::SmallVector<const Met *, 2> summed = {};      // of these, what the result does not have
  std::optional<RingValue::Collected> collected = {}; // blocks of all ranks in one dimension
  std::optional<Place> across = {};                   // its factor
  bool known = true;                                  // of each operand, what it is
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
  void meet(size_t arg, const RingValue::Cut &cut);
  bool lists(const RingValue &a, const RingValue &b) const;
  void judge_mixed(const Met &one, const Met &other);
  std::optional<int64_t> extent(uint8_t factor) const;
  std::optional<Place> locate(size_t arg, const DimRange &at) const;
  std::optional<DimRange> place(uint32_t result, const Place &at) const;
  std::optional<llvm::SmallVector<RingValue::Shift, 2>> shifts(size_t arg) const;
  std::optional<llvm::SmallVector<RingValue::Shift, 2>> shifts(size_t arg, uint32_t result) const;
  bool settle(llvm::SmallVector<RingValue::Shift, 2> &shifts, uint32_t result) const;

  RingValue loose(uint32_t result);
  RingValue of(uint32_t result, llvm::ArrayRef<Expressions::Id> forms);
  bool sums(uint32_t result) const;
  std::optional<RingValue> moved(uint32_t result);
  std::optional<RingValue> alike(uint32_t result);
  std::optional<RingValue> added(uint32_t result);
  std::optional<RingValue> multiplied(uint32_t result);
  std::optional<RingValue> divided(uint32_t result);
  std::optional<RingValue> exponential(uint32_t result);
  std::optional<RingValue> logarithm(uint32_t result);
  std::optional<RingValue> chosen(uint32_t result);
  std::optional<RingValue> joined(uint32_t result);
  std::optional<RingValue> log_of_sum(uint32_t result);
  std::optional<RingValue> softmax(uint32_t result);
  std::optional<RingValue> log_of_sums(uint32_t result);
  std::optional<RingValue> log_of_list(uint32_t result);
  const Log *log_of(const RingValue &value) const;
  std::optional<Log> together(const Log &one, const Log &other, uint32_t operand);
  RingValue log_value(const Log &log, uint32_t result);
  void note_logs(uint32_t result);
  std::optional<RingValue> content(uint32_t result);
  bool add_terms(RingValue &to, const RingValue &other, bool negated);
  void miss(size_t arg);
  uint32_t second_operand() const;
  void repeat(uint64_t twice, uint32_t operand);
  void judge_scales(const RingValue &a, const RingValue &b);
  Expressions::Id form_with(size_t arg, Expressions::Id form, uint32_t result);
  std::optional<RingValue> operand(size_t slot, uint32_t result);
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
