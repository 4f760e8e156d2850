// Extents that meet, and which factors of the forward row a derived one has.
#include "runtime/equation/lowering.h"

#include "rules/derivative.h"

#include "ir/support/check.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime::lowered {

using rules::DimFactors;
using rules::kGenerator;
using rules::kNoFactor;
using rules::Ref;
using rules::TensorFactors;

// Extents.

Extents::Extents(const rules::FactorMap &map, llvm::ArrayRef<Shaped> args,
                 llvm::ArrayRef<Shaped> results)
    : known_(map.factors.size(), -1) {
  for (const Shaped &tensor : args)
    take_single(tensor, true);
  for (const Shaped &tensor : results)
    take_single(tensor, false);
  for (bool several : {false, true}) {
    for (const Shaped &tensor : args)
      divide(tensor, several);
    for (const Shaped &tensor : results)
      divide(tensor, several);
  }
  for (size_t f = 0; f < map.factors.size(); ++f)
    if (const auto &extent = map.factors[f].extent; known_[f] < 0 && extent && extent->is_number())
      known_[f] = extent->number();
}

uint8_t Extents::add(int64_t extent) {
  SPMD_CHECK(known_.size() < 255, "an application has too many factors");
  known_.push_back(extent);
  return static_cast<uint8_t>(known_.size() - 1);
}

int64_t Extents::product(const DimFactors &dim) const {
  int64_t product = 1;
  for (uint8_t factor : dim)
    product *= known_[factor];
  return product;
}

void Extents::take_single(const Shaped &tensor, bool is_arg) {
  for (size_t d = 0; tensor.factors && d < tensor.factors->size(); ++d) {
    const DimFactors &dim = (*tensor.factors)[d];
    if (dim.size() != 1)
      continue;
    int64_t &known = known_[dim[0]], extent = (*tensor.dims)[d];
    if (known < 0 || known == 1)
      known = extent;
    else if (known != extent && !(is_arg && extent == 1) && problem_.empty())
      problem_ =
          fmt::format("a dimension has extent {} in one tensor and {} in another", known, extent);
  }
}

// `(a b)`: the one part that is not known follows from the others. `several`: parts that nothing
// tells apart are one, and the others have one element.
void Extents::divide(const Shaped &tensor, bool several) {
  for (size_t d = 0; tensor.factors && d < tensor.factors->size(); ++d) {
    int64_t known = 1;
    llvm::SmallVector<uint8_t, 2> missing;
    for (uint8_t factor : (*tensor.factors)[d])
      if (known_[factor] >= 0)
        known *= known_[factor];
      else
        missing.push_back(factor);
    if (missing.empty() || (missing.size() > 1 && !several) || known == 0 ||
        (*tensor.dims)[d] % known)
      continue;
    for (uint8_t factor : missing)
      known_[factor] = 1;
    known_[missing.front()] = (*tensor.dims)[d] / known;
  }
}

// What the terms share.

static llvm::SmallVector<Shaped, 4> shaped(llvm::ArrayRef<Dims> dims,
                                           llvm::ArrayRef<std::optional<TensorFactors>> factors) {
  llvm::SmallVector<Shaped, 4> made;
  for (size_t i = 0; i < dims.size(); ++i) {
    bool known = i < factors.size() && factors[i] && factors[i]->size() == dims[i].size();
    made.push_back({&dims[i], known ? &*factors[i] : nullptr});
  }
  return made;
}

Lowering::Lowering(const KernelContext &context, llvm::ArrayRef<Dims> args,
                   llvm::ArrayRef<Dims> results, bool modular)
    : context(context), equation(context.row.equation.equation), modular(modular),
      args_(shaped(args, context.map.args)), results_(shaped(results, context.map.results)),
      extents(context.map, args_, results_), problem(extents.problem()) {
  for (const rules::FactorInfo &factor : context.map.factors) {
    labels.push_back(labels.size());
    whole.push_back(factor.whole);
  }
  if (modular)
    name_unknown();
}

// Nothing is known of the dimensions of a tensor: each is a whole factor of its own. Those of a
// gradient are those of the result, and what is made has those of the operand.
void Lowering::name_unknown() {
  made_.reserve(args_.size() + results_.size());
  auto name = [&](Shaped &tensor, uint64_t label) {
    if (tensor.factors)
      return;
    TensorFactors &made = made_.emplace_back();
    for (size_t d = 0; d < tensor.dims->size(); ++d) {
      made.push_back({extents.add((*tensor.dims)[d])});
      labels.push_back(mix(label, d));
      whole.push_back(true);
    }
    tensor.factors = &made;
  };
  constexpr uint64_t kArg = 1000, kResult = 2000;
  if (!is_derived()) {
    // One member of each list may be all that is taken.
    for (const rules::Slot &slot : context.app.slots)
      for (size_t i = slot.first; i < slot.first + slot.count; ++i)
        name(args_[i], mix(kArg, i));
    for (size_t k = 0; k < results_.size(); ++k)
      name(results_[k], mix(kResult, k));
    return;
  }
  unsigned gradients = 0, operand = context.row.derivative_at;
  for (unsigned i = 0; i < rules::gradient_count(forward()) && i < context.app.slots.size(); ++i)
    for (unsigned k = 0; k < context.app.slots[i].count; ++k, ++gradients)
      name(args_[context.app.slots[i].first + k], mix(kResult, i + k));
  for (size_t i = gradients; i < args_.size(); ++i)
    name(args_[i], mix(kArg, i - gradients));
  const rules::Slot *own = nullptr;
  std::string_view wanted = forward().equation.equation.operands[operand].name;
  if (unsigned place = equation.find_operand(wanted); place < equation.operand_count)
    own = context.binding[place];
  for (Shaped &result : results_)
    if (!result.factors && own && member() < own->count &&
        *args_[own->first + member()].dims == *result.dims)
      result.factors = args_[own->first + member()].factors;
  for (size_t k = 0; k < results_.size(); ++k)
    name(results_[k], mix(kResult, 100 + k));
}

bool Lowering::fail(std::string text) {
  if (problem.empty())
    problem = std::move(text);
  return false;
}

std::optional<unsigned> Lowering::gradient_of(const Ref &ref) const {
  if (!is_derived() || ref.operand == kGenerator)
    return std::nullopt;
  std::string_view name = equation.operands[ref.operand].name; // `dr`, or `dr` and a number
  if (name.substr(0, 2) != "dr" || name.find_first_not_of("0123456789", 2) != name.npos ||
      forward().equation.equation.find_operand(name) < forward().equation.equation.operand_count)
    return std::nullopt;
  unsigned place = 0;
  for (char c : name.substr(2))
    place = place * 10 + static_cast<unsigned>(c - '0');
  return place;
}

bool Lowering::is_differentiated(const Ref &ref) const {
  return is_derived() && ref.operand != kGenerator &&
         equation.operands[ref.operand].name ==
             forward().equation.equation.operands[context.row.derivative_at].name;
}

// The map is that of the forward row, whose factors may be numbered otherwise.
std::optional<uint8_t> Lowering::target_of(const Ref &ref) const {
  if (ref.index == kNoFactor)
    return std::nullopt;
  uint8_t factor = forward().equation.equation.find_factor(equation.factors[ref.index]);
  const auto &of_row = context.map.of_row;
  if (factor >= of_row.size() || of_row[factor].size() != 1)
    return std::nullopt;
  return of_row[factor][0];
}

unsigned Lowering::member() const {
  if (context.row.derivative_of &&
      forward().equation.equation.operands[context.row.derivative_at].list ==
          rules::ListForm::Single)
    return 0;
  return static_cast<unsigned>(rules::number_attr(context.app, {"member"}).value_or(0));
}

uint64_t Lowering::seed() const {
  return mix(hash_of(forward().name), hash_of(context.app.program, context.app.attrs));
}

// The sum that defines a result of the row; lists of results belong to the last one.
static const rules::Sum &sum_of(const rules::Equation &equation, unsigned row_result) {
  unsigned s = 0;
  while (s + 1 < equation.sum_count && row_result >= equation.sums[s + 1].first_result)
    ++s;
  return equation.sums[s];
}

llvm::Error Lowering::run(std::vector<ResultPlan> &out) {
  for (unsigned k = 0; k < results_.size() && problem.empty(); ++k) {
    unsigned place = is_derived() ? 0 : rules::row_result(context.app, k);
    ResultPlan plan;
    plan.seed = mix(seed(), place);
    const ir::Shape *shape = context.app.results[k].shape.valid()
                                 ? &context.app.program.shapes[context.app.results[k].shape]
                                 : nullptr;
    plan.is_truth = modular && equation.has_function && shape && shape->dtype == ir::DType::Bool;
    const rules::Sum &sum = sum_of(equation, place);
    plan.opaque =
        place >= equation.result_count && !equation.results[equation.result_count - 1].list;
    if (plan.opaque && !modular)
      fail("nothing is known of one of its results");
    for (unsigned t = 0; t < sum.term_count && !plan.opaque; ++t) {
      const rules::Term &row = equation.terms[sum.first_term + t];
      unsigned members = 1;
      each_ref(equation, row, [&](const Ref &ref, bool inside) {
        if (!inside && ref.operand != kGenerator && context.binding[ref.operand] &&
            equation.operands[ref.operand].list == rules::ListForm::Summed)
          members = std::max<unsigned>(members, context.binding[ref.operand]->count);
      });
      for (unsigned i = 0; i < members; ++i)
        if (Term term; build_term(*this, row, k, place, i, term))
          plan.terms.push_back(std::move(term));
    }
    out.push_back(std::move(plan));
  }
  if (problem.empty())
    return llvm::Error::success();
  return llvm::createStringError(std::errc::invalid_argument, "`%s` cannot be run: %s",
                                 std::string(context.row.name).c_str(), problem.c_str());
}

} // namespace spmd::runtime::lowered
