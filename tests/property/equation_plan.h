// An equation made executable: loops over small extents, exact whole numbers. What an equation
// leaves open is filled in by fixed arbitrary choices that are equal on all ranks: f(...) is a hash
// of all that it is given, the linear map along whole factors has arbitrary coefficients, a
// condition weighs its term by a hash of its value. What holds for them holds for no reason that is
// special to one op.
#pragma once

#include "rules/factors/factors.h"
#include "rules/ops/op.h"

#include <cstdint>
#include <vector>

namespace spmd::property {

// What one rank holds of one tensor, row major.
using Data = std::vector<int64_t>;

// Which of an operand's members there are, and what their dimensions are made of.
struct TensorPlan {
  std::vector<std::vector<uint8_t>> dims; // factors, outermost first; none: extent 1
};

// The tensors of one application of an equation.
struct ShapePlan {
  std::vector<int> extents;                      // per factor
  std::vector<bool> whole;                       // per factor
  std::vector<std::vector<TensorPlan>> operands; // per operand of the equation: its members
  std::vector<TensorPlan> results;               // per sum of the equation
  std::vector<std::vector<uint8_t>> row_factors; // factors here, per factor of the equation
  // Of what the extents are a block, per factor: its first entry and the extent of the whole.
  // Empty: all are the whole. Indices into a dimension that may be cut count from the start of the
  // whole.
  std::vector<int> first, all;

  size_t size(const TensorPlan &tensor) const;
};

// The dimensions as the equation writes them, every extent 2, `...` as many dimensions as asked
// for, two members per list. `absent`: a bit per operand that is missing.
ShapePlan plan_as_written(const rules::Equation &equation, uint32_t absent, unsigned rest = 1);
// The dimensions of an application, for equations that leave them to attributes. `members`: the
// tensors of the application per operand.
ShapePlan plan_of_map(const rules::FactorMap &map,
                      const std::vector<std::vector<uint16_t>> &members);

// The data of all operands on one rank, and the state of the generator.
struct RankData {
  std::vector<std::vector<Data>> operands; // per operand and member
  int64_t state = 0;
};

// One sum of an equation, its loops laid out once.
class SumPlan {
public:
  SumPlan(const rules::Equation &equation, const rules::Sum &sum, const ShapePlan &shapes);

  size_t result_size() const { return result_size_; }
  size_t term_count() const { return terms_.size(); }
  // Adds the value of a term to `result`.
  void add_term(size_t term, const RankData &data, Data &result) const;
  // The operands that stand in a term, shape_only_operands apart.
  const std::vector<unsigned> &operands_of(size_t term) const { return terms_[term].operands; }

private:
  // One mention of a value: where it is read at each point of the loops.
  struct Read {
    unsigned operand = 0;
    bool is_state = false, summed = false, weighs = false;
    bool one_hot = false;
    int one_hot_extent = 0, one_hot_first = 0;
    std::vector<uint32_t> at;     // per point
    std::vector<uint32_t> target; // one_hot: the entry that counts
  };
  struct Argument {
    unsigned operand = 0, member = 0;
    bool is_state = false;
    std::vector<uint32_t> at; // per point: `width` positions
    size_t width = 1;
  };
  struct Function {
    std::vector<Argument> arguments;
    uint64_t seed = 0;
  };
  struct TermPlan {
    int64_t factor = 1;
    std::vector<unsigned> operands;
    std::vector<uint32_t> result;      // per point
    std::vector<int64_t> coefficients; // per point; empty: 1
    std::vector<uint64_t> positions;   // per point: a hash of the whole indices
    std::vector<Read> reads;
    std::vector<Function> functions;
  };
  class Builder;

  std::vector<TermPlan> terms_;
  size_t result_size_ = 0;
};

} // namespace spmd::property
