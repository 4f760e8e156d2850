// An equation as the meaning of an op, for operands of any extents that fit it.
#pragma once

#include "tests/property/shard_check.h"

namespace spmd::property {

class PlanMeaning : public OpMeaning {
public:
  // `shapes`: the dimensions; its extents are those of factors that no operand has. Without
  // `averages` nothing is divided by.
  PlanMeaning(const rules::Equation &equation, ShapePlan shapes, bool averages, int64_t constant,
              size_t results);
  // Which operand each tensor of the equation is, where they come in another order.
  void reorder(std::vector<size_t> order) { order_ = std::move(order); }

  std::optional<std::vector<Array>> run(const std::vector<Array> &operands) const override;
  int64_t scale(size_t result, const std::vector<Layout> &operands,
                const MeshSizes &mesh) const override;

  // Per factor; none if operands of these extents do not fit together.
  std::optional<std::vector<int>> extents(const std::vector<std::vector<int>> &dims) const;
  const ShapePlan &shapes() const { return shapes_; }
  // All tensors one after the other.
  std::vector<const TensorPlan *> tensors() const;
  // The plan of each result.
  const TensorPlan &result(size_t k) const;

private:
  size_t operand(size_t tensor) const { return order_.empty() ? tensor : order_[tensor]; }
  const rules::Sum &sum_of(size_t result) const;
  std::vector<uint8_t> divisors(const rules::Term &term) const;
  Array evaluate(size_t result, const ShapePlan &shapes, const RankData &data) const;

  const rules::Equation &equation_;
  ShapePlan shapes_;
  bool averages_, points_into_cut_ = false;
  int64_t constant_;
  size_t results_;
  std::vector<size_t> order_;
  mutable std::map<std::vector<int>, std::vector<SumPlan>> plans_; // per extents and blocks
};

} // namespace spmd::property
