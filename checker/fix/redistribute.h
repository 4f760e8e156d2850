// The redistribution that would bring the operands of an op together: what `elaborate` puts in, as
// a fix.
#pragma once

#include "checker/check.h"

#include "rules/redistribute/placement.h"

#include <map>
#include <vector>

namespace spmd::checker {

// One value that is moved.
struct Move {
  ir::ValueId value;
  llvm::SmallVector<uint32_t, 2> operands; // that are it, among the tensors of the instruction
  rules::TensorInfo from, to;
  ir::AttrsId attrs; // of the op then
  uint64_t forward_bytes = 0, backward_bytes = 0;
  std::string words;              // `tp, src=S(0), dst=S(1)` or `to=f32[8, 4@tp]`
  std::string attributes;         // the same in a program: `axis = tp, src = S(0), dst = S(1)`
  ir::AttrsId redistribute_attrs; // of the redistribution: `to` a whole type
};

class RedistributionFinder {
public:
  RedistributionFinder(ir::Program &program, const CheckResult &result, const CheckOptions &options)
      : program_(program), result_(result), options_(options), rules_(program),
        planner_(program, {}, &effort_) {}

  // None if moving one value does not help, or is not the cheapest.
  std::optional<Move> find(ir::InstId inst);
  // The operand with these axes innermost on the dimension that they share with others.
  std::optional<Move> innermost(ir::InstId inst, uint32_t operand, ir::AxisSet axes);

  // Whether the last search ended before all was looked at.
  bool cut() const { return effort_.cut; }

private:
  // Moves that the search for one finding looks at, and all searches together.
  static constexpr uint64_t kPerFinding = 150'000, kTogether = 40 * kPerFinding;
  void begin();
  std::optional<Move> search(ir::InstId inst);
  void price(Move &move);

  ir::Program &program_;
  const CheckResult &result_;
  const CheckOptions &options_;
  rules::Rules rules_;
  uint64_t together_ = kTogether; // left for all searches
  rules::redistribute::SearchBudget effort_;
  rules::redistribute::Planner planner_;
  // By instruction and what its operands are: what was found, and whether the search was cut.
  std::map<std::vector<uint32_t>, std::pair<std::optional<Move>, bool>> found_;
};

} // namespace spmd::checker
