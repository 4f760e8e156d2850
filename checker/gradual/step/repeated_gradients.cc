// Each gradient that a backward makes of a parameter is a term; sums, copies and factors of them
// are followed up to what the optimizer reads.
#include "checker/gradual/step/repeated_gradients.h"

#include "checker/gradual/axis_size_numbers.h"
#include "checker/operand_list.h"
#include "checker/program_queries.h"
#include "checker/walk/gradients/backward_slice.h"

#include "rules/apply.h"
#include "rules/violations/steps/returned.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <map>
#include <vector>

namespace spmd::checker {

using ir::InstId;
using ir::ValueId;
using rules::Computes;

namespace {

using Terms = std::map<uint32_t, double>; // by value: how often it is in a sum

class RepeatedGradients {
public:
  RepeatedGradients(ir::Program &program, CheckResult &result)
      : program_(program), result_(result), uses_(program.values.size()) {}

  void run() {
    for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i)
      for (ValueId value : tensors_of(program_, InstId{i}))
        ++uses_[value.index];
    for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i)
      follow(InstId{i});
  }

private:
  // Sums longer than that are not followed: each sum has a list of its terms.
  static constexpr size_t kMostTerms = 512;

  const Terms *find(ValueId value) const {
    const auto at = terms_.find(value.index);
    return at == terms_.end() ? nullptr : &at->second;
  }

  // None: another thing than a sum of gradients.
  std::optional<Terms> made_of(InstId id, llvm::ArrayRef<ValueId> operands) {
    const rules::ResolvedOp op = op_of(program_, id);
    if (op.form != rules::OpForm::Equation || !op.row)
      return std::nullopt;
    if (copies_operand(op, operands.size()))
      return take(operands.back());
    if (operands.size() == 1 && rules::moves_elements(op) && has_all(id, operands[0]))
      return take(operands[0]);
    list_.read(program_, program_.insts[id].operands);
    const std::optional<double> factor = operands.size() == 1 ? factor_of(op, list_) : std::nullopt;
    if (factor)
      return scaled(take(operands[0]), *factor);
    const bool adds = op.computes(Computes::Add) && operands.size() == 2 &&
                      list_.slots.size() == 2 && !program_.find(program_.insts[id].attrs, "alpha");
    return adds ? sum(id, operands[0], operands[1]) : std::nullopt;
  }

  // The last instruction that reads a sum need not copy it.
  std::optional<Terms> take(ValueId value) {
    const auto at = terms_.find(value.index);
    if (at == terms_.end())
      return std::nullopt;
    return uses_[value.index] == 1 ? std::move(at->second) : at->second;
  }

  bool has_all(InstId id, ValueId operand) const {
    const auto count = [&](ValueId value) {
      const ir::ShapeId shape = result_.shapes[value.index];
      return shape.valid() ? ir::element_count(program_.shapes[shape]) : std::nullopt;
    };
    const ir::Inst &inst = program_.insts[id];
    return inst.result_count == 1 && count(operand) && count(operand) == count(inst.first_result);
  }

  static std::optional<Terms> scaled(std::optional<Terms> terms, double factor) {
    if (terms)
      for (auto &[value, times] : *terms)
        times *= factor;
    return terms;
  }

  std::optional<Terms> sum(InstId id, ValueId a, ValueId b) {
    if (!find(a) || !find(b) || find(a)->size() + find(b)->size() > kMostTerms)
      return std::nullopt;
    Terms all = *take(a), more = *take(b);
    if (all.size() < more.size())
      std::swap(all, more);
    for (const auto &[value, times] : more) {
      const auto [at, is_new] = all.try_emplace(value, 0);
      at->second += times;
      if (!is_new)
        repeats_.try_emplace(value, id);
    }
    return all;
  }

  void follow(InstId id) {
    const ir::Inst &inst = program_.insts[id];
    const llvm::SmallVector<ValueId, 4> operands = tensors_of(program_, id);
    std::optional<Terms> made;
    if (llvm::any_of(operands, [&](ValueId value) { return find(value) != nullptr; })) {
      made = made_of(id, operands);
      for (ValueId value : operands)
        if (const Terms *terms = find(value); terms && !made && inst.phase == ir::Phase::Optimizer)
          judge(*terms);
    } else if (inst.phase == ir::Phase::Backward) {
      for (uint32_t r = 0; r < inst.result_count; ++r)
        if (const ValueId of = program_.values[inst.result(r)].grad_of;
            of.valid() && program_.find_param(of))
          terms_[inst.result(r).index] = {{inst.result(r).index, 1.0}};
    }
    for (ValueId value : operands)
      if (--uses_[value.index] == 0)
        terms_.erase(value.index);
    if (made && inst.result_count == 1)
      terms_[inst.first_result.index] = std::move(*made);
  }

  // Only what some sum has added twice is judged: other weights may be meant.
  void judge(const Terms &terms) {
    const auto [least, most] =
        std::minmax_element(terms.begin(), terms.end(), [](const auto &a, const auto &b) {
          return std::abs(a.second) < std::abs(b.second);
        });
    const auto repeated = repeats_.find(most->first);
    const double times = std::abs(most->second / least->second);
    if (repeated == repeats_.end() || !(times > 1 + 1e-9))
      return;
    for (const auto &[term, weight] : terms) { // the copies of a tied weight
      const ValueId param = program_.values[ValueId{term}].grad_of;
      if (!reported_.insert(param.index).second)
        continue;
      result_.findings.push_back({rules::RepeatedGradient{param, int64_t(std::llround(times))},
                                  Place::inst(repeated->second)});
      for (const ir::Output &output : program_.outputs)
        if (output.of == param)
          result_.proved[output.value.index] = {};
    }
  }

  ir::Program &program_;
  CheckResult &result_;
  OperandList list_;
  std::vector<uint32_t> uses_;            // by value: by instructions that are still to be followed
  llvm::DenseMap<uint32_t, Terms> terms_; // by value
  llvm::DenseMap<uint32_t, InstId> repeats_; // by term: the first sum of two sums that have it
  llvm::DenseSet<uint32_t> reported_;        // parameters
};

} // namespace

void judge_repeated_gradients(ir::Program &program, CheckResult &result) {
  RepeatedGradients(program, result).run();
}

} // namespace spmd::checker
