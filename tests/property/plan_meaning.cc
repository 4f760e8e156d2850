// Loops are laid out once per set of extents.
#include "tests/property/plan_meaning.h"

#include <algorithm>

namespace spmd::property {

using rules::Equation;

// What every divisor divides: a sum of averages is exact.
constexpr int64_t kMultiple = 27720;

PlanMeaning::PlanMeaning(const Equation &equation, ShapePlan shapes, bool averages,
                         int64_t constant, size_t results)
    : equation_(equation), shapes_(std::move(shapes)), averages_(averages), constant_(constant),
      results_(results) {
  for (unsigned r = 0; r < equation.ref_count; ++r)
    points_into_cut_ |= equation.refs[r].index != rules::kNoFactor && !equation.refs[r].index_whole;
}

std::vector<const TensorPlan *> PlanMeaning::tensors() const {
  std::vector<const TensorPlan *> all;
  for (const std::vector<TensorPlan> &operand : shapes_.operands)
    for (const TensorPlan &member : operand)
      all.push_back(&member);
  return all;
}

const rules::Sum &PlanMeaning::sum_of(size_t result) const {
  unsigned s = 0;
  while (s + 1 < equation_.sum_count && result >= equation_.sums[s + 1].first_result)
    ++s;
  return equation_.sums[s];
}
const TensorPlan &PlanMeaning::result(size_t k) const {
  if (!equation_.results[0].has_dims) // results of an application
    return shapes_.results[k];
  auto at = static_cast<size_t>(&sum_of(k) - equation_.sums.data());
  return shapes_.results[std::min(at, shapes_.results.size() - 1)];
}

std::optional<std::vector<int>>
PlanMeaning::extents(const std::vector<std::vector<int>> &dims) const {
  std::vector<int> found = shapes_.extents;
  std::vector<bool> known(found.size());
  std::vector<const TensorPlan *> all = tensors();
  auto settle = [&](uint8_t factor, int extent) {
    bool fits = !known[factor] || found[factor] == extent;
    found[factor] = extent;
    known[factor] = true;
    return fits;
  };
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t d = 0; d < all[i]->dims.size(); ++d) {
      const std::vector<uint8_t> &factors = all[i]->dims[d];
      if (factors.empty() ? dims[i][d] != 1
                          : factors.size() == 1 && !settle(factors[0], dims[i][d]))
        return std::nullopt;
    }
  // Of what is merged the leading part alone may differ from block to block.
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t d = 0; d < all[i]->dims.size(); ++d) {
      const std::vector<uint8_t> &factors = all[i]->dims[d];
      if (factors.size() < 2)
        continue;
      int inner = 1;
      for (size_t f = 1; f < factors.size(); ++f)
        inner *= found[factors[f]];
      if (inner == 0 || dims[i][d] % inner || !settle(factors[0], dims[i][d] / inner))
        return std::nullopt;
      for (size_t f = 1; f < factors.size(); ++f)
        known[factors[f]] = true;
    }
  return found;
}

std::vector<uint8_t> PlanMeaning::divisors(const rules::Term &term) const {
  std::vector<uint8_t> factors;
  for (size_t f = 0; averages_ && f < shapes_.row_factors.size(); ++f)
    if (f <= rules::kRestFactor && term.divisors >> f & 1)
      factors.insert(factors.end(), shapes_.row_factors[f].begin(), shapes_.row_factors[f].end());
  return factors;
}

int64_t PlanMeaning::scale(size_t result, const std::vector<Layout> &operands,
                           const MeshSizes &mesh) const {
  const rules::Sum &sum = sum_of(result);
  if (sum.term_count == 0)
    return 1;
  std::vector<uint8_t> averaged = divisors(equation_.terms[sum.first_term]);
  std::vector<const TensorPlan *> all = tensors();
  int64_t scale = 1;
  for (size_t a = 0; a < mesh.size(); ++a) {
    bool counts = false;
    for (size_t i = 0; i < all.size(); ++i)
      if (Layout::Place place = operands[operand(i)].axes[a];
          place.form == ShardForm::Shard && !all[i]->dims[place.dim].empty())
        counts |= std::count(averaged.begin(), averaged.end(), all[i]->dims[place.dim][0]) > 0;
    scale *= counts ? mesh[a] : 1;
  }
  return scale;
}

Array PlanMeaning::evaluate(size_t k, const ShapePlan &shapes, const RankData &data) const {
  std::vector<int> key = shapes.extents;
  key.insert(key.end(), shapes.first.begin(), shapes.first.end());
  std::vector<SumPlan> &plans = plans_[key];
  for (size_t i = plans.size(); i < results_; ++i) {
    ShapePlan one = shapes;
    one.results = {result(i)};
    plans.emplace_back(equation_, sum_of(i), one);
  }
  const rules::Sum &sum = sum_of(k);
  const SumPlan &plan = plans[k];
  Array out;
  for (const std::vector<uint8_t> &dim : result(k).dims) {
    out.dims.push_back(1);
    for (uint8_t factor : dim)
      out.dims.back() *= shapes.extents[factor];
  }
  out.data.assign(element_count(out.dims), sum.term_count ? 0 : constant_);
  for (size_t t = 0; t < plan.term_count(); ++t) {
    Data addend(out.data.size());
    plan.add_term(t, data, addend);
    int64_t weight = 1; // all terms divide by the same
    for (uint8_t factor : divisors(equation_.terms[sum.first_term]))
      weight *= kMultiple / std::max(1, shapes.extents[factor]);
    for (size_t e = 0; e < addend.size(); ++e)
      out.data[e] += weight * addend[e];
  }
  return out;
}

std::optional<std::vector<Array>> PlanMeaning::run(const std::vector<Array> &given) const {
  std::vector<Array> operands;
  for (size_t i = 0; i < given.size(); ++i)
    operands.push_back(given[operand(i)]);
  std::vector<std::vector<int>> dims;
  for (const Array &tensor : operands)
    dims.push_back(tensor.dims);
  std::optional<std::vector<int>> found = extents(dims);
  if (!found)
    return std::nullopt;
  ShapePlan shapes = shapes_;
  shapes.extents = *found;
  std::vector<const TensorPlan *> all = tensors();
  if (points_into_cut_) {
    shapes.all = *found;
    shapes.first.assign(found->size(), 0);
    for (size_t i = 0; i < all.size(); ++i)
      for (size_t d = 0; d < all[i]->dims.size(); ++d)
        if (all[i]->dims[d].size() == 1 && !operands[i].all.empty()) {
          shapes.all[all[i]->dims[d][0]] = operands[i].all[d];
          shapes.first[all[i]->dims[d][0]] = operands[i].first[d];
        }
  }
  RankData data;
  size_t at = 0;
  for (const std::vector<TensorPlan> &operand : shapes_.operands) {
    data.operands.emplace_back();
    for (size_t k = 0; k < operand.size(); ++k)
      data.operands.back().push_back(operands[at++].data);
  }
  std::vector<Array> results;
  for (size_t k = 0; k < results_; ++k)
    results.push_back(evaluate(k, shapes, data));
  return results;
}

} // namespace spmd::property
