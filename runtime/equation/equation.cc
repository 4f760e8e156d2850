// What the equation of a row is worth, and carrying it out.
#include "runtime/equation/equation.h"

#include "runtime/equation/lowering.h"

namespace spmd::runtime {

using rules::Equation;
using rules::FactorSet;
using rules::kGenerator;
using rules::kNoFactor;
using rules::ListForm;
using rules::Ref;
using rules::RefRole;

namespace {

// Factors of the row that the dimensions name.
FactorSet named(const Equation &equation, unsigned first, unsigned count) {
  FactorSet set = 0;
  for (unsigned d = first; d < first + count; ++d) {
    const rules::Dim &dim = equation.dims[d];
    if (dim.form == rules::Dim::Form::Merged)
      for (unsigned m = dim.first; m < unsigned(dim.first) + dim.count; ++m)
        set |= FactorSet(1) << equation.merged[m];
    else if (dim.form != rules::Dim::Form::One)
      set |= FactorSet(1) << dim.first;
  }
  return set;
}

bool is_value(const Equation &equation, const rules::Sum &sum) {
  FactorSet results = 0;
  for (unsigned r = sum.first_result; r < unsigned(sum.first_result) + sum.result_count; ++r)
    results |= named(equation, equation.results[r].first_dim, equation.results[r].dim_count);
  bool value = sum.term_count > 0;
  for (unsigned t = sum.first_term; t < unsigned(sum.first_term) + sum.term_count; ++t) {
    FactorSet met = results, targets = 0;
    lowered::each_ref(equation, equation.terms[t], [&](const Ref &ref, bool inside) {
      bool one_hot = ref.role == RefRole::Condition && ref.index != kNoFactor;
      value &= !inside && ref.operand != kGenerator;
      value &= ref.role == RefRole::Value || one_hot;
      // What a list of tensors without dimensions comes to is a matter of positions.
      value &= ref.operand == kGenerator || ref.has_dims ||
               equation.operands[ref.operand].list != ListForm::Summed;
      targets |= one_hot ? FactorSet(1) << ref.index : 0;
      met |= named(equation, ref.first_dim, ref.dim_count);
    });
    value &= !(met & equation.whole & ~targets);
  }
  return value;
}

} // namespace

bool is_value(const rules::OpDef &row) {
  const Equation &equation = row.equation.equation;
  for (unsigned s = 0; s < equation.sum_count; ++s)
    if (!is_value(equation, equation.sums[s]))
      return false;
  return row.constant == rules::OpDef::Constant::No;
}

struct LoweredEquation::Plan {
  std::vector<lowered::ResultPlan> results;
};

llvm::Expected<std::unique_ptr<LoweredEquation>>
LoweredEquation::lower(const KernelContext &context, llvm::ArrayRef<Dims> args,
                       llvm::ArrayRef<Dims> results, bool modular) {
  const rules::OpDef *forward = context.row.derivative_of;
  if (!modular && !runtime::is_value(forward ? *forward : context.row))
    return llvm::createStringError(std::errc::not_supported, "`%s` cannot be run: it has no kernel",
                                   std::string(context.row.name).c_str());
  auto plan = std::make_unique<Plan>();
  if (llvm::Error error = lowered::Lowering(context, args, results, modular).run(plan->results))
    return error;
  return std::unique_ptr<LoweredEquation>(new LoweredEquation(std::move(plan)));
}

LoweredEquation::LoweredEquation(std::unique_ptr<Plan> plan) : plan_(std::move(plan)) {}
LoweredEquation::~LoweredEquation() = default;

llvm::ArrayRef<lowered::ResultPlan> LoweredEquation::results() const { return plan_->results; }

namespace {

// A result of which the row says nothing: a residue per element, drawn from all operands.
void run_opaque(const lowered::ResultPlan &plan, const Call<Residue> &call,
                const View<Residue> &result) {
  uint64_t hash = plan.seed;
  for (const View<const Residue> &arg : call.args)
    for (int64_t i = 0; arg && i < arg.size(); ++i)
      hash = lowered::mix(hash, arg[i].value());
  for (int64_t i = 0; i < result.size(); ++i)
    result[i] = Residue::from_bits(lowered::mix(hash, static_cast<uint64_t>(i)));
}

} // namespace

template <class T>
bool LoweredEquation::run(const Call<T> &call, const Precision &precision) const {
  bool floats = true;
  for (size_t k = 0; k < plan_->results.size(); ++k) {
    const lowered::ResultPlan &plan = plan_->results[k];
    const View<T> &result = call.results[k];
    if (!result)
      continue;
    if constexpr (std::is_same_v<T, Residue>)
      if (plan.opaque) {
        run_opaque(plan, call, result);
        continue;
      }
    // One rounding less than a product with the inverse.
    bool divides_last = !std::is_same_v<T, Residue> && plan.terms.size() == 1;
    if (plan.terms.empty())
      std::fill_n(result.data, result.size(), T(0));
    bool fresh = true;
    for (const lowered::Term &term : plan.terms) {
      floats &= lowered::run_term<T>(term, call, result, fresh, !divides_last, precision);
      fresh = false;
    }
    if constexpr (std::is_same_v<T, Residue>)
      for (int64_t i = 0; plan.is_truth && i < result.size(); ++i)
        result[i] = Residue(static_cast<int64_t>(result[i].value() & 1));
    floats &= plan.terms.size() == 1 && plan.terms[0].divisor == 1;
    if (divides_last && plan.terms[0].divisor != 1)
      for (int64_t i = 0; i < result.size(); ++i)
        if constexpr (!std::is_same_v<T, Residue>)
          result[i] = result[i] / static_cast<double>(plan.terms[0].divisor);
  }
  return floats;
}

template bool LoweredEquation::run(const Call<double> &, const Precision &) const;
template bool LoweredEquation::run(const Call<Complex> &, const Precision &) const;
template bool LoweredEquation::run(const Call<Residue> &, const Precision &) const;

} // namespace spmd::runtime
