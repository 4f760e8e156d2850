// Forward: which values are sums of squares, and what of them all ranks have alike.
#include "checker/gradual/step/counted_norms.h"

#include "checker/gradual/gradual.h"
#include "checker/gradual/norms.h"
#include "checker/operand_list.h"

#include "rules/apply.h"
#include "rules/ops/op.h"
#include "rules/transitions/axes.h"
#include "rules/transitions/call.h"
#include "rules/violations/norms.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

#include <optional>

namespace spmd::checker {

using ir::AxisSet;
using ir::InstId;
using ir::ValueId;
using rules::Computes;

namespace {

class CountedNorms {
public:
  CountedNorms(ir::Program &program, CheckResult &result)
      : program_(program), result_(result), rules_(program) {
    for (const Finding &finding : result.findings)
      if (finding.place.form == Place::Form::Inst)
        reported_.insert(finding.place.index);
  }

  void run();

private:
  struct Squares {       // a sum of squares
    AxisSet equal;       // along which all ranks have some of them alike
    bool rooted = false; // the root of one
    // The sum over ranks that has counted such squares, and over which axes.
    InstId sum;
    uint32_t operand = 0;
    AxisSet counted;
  };
  using Found = std::optional<Squares>;

  Found of(ValueId value) const;
  AxisSet equal(ValueId value) const;
  Found joined(llvm::ArrayRef<ValueId> operands) const;
  Found made(InstId id, const rules::Application &app, uint32_t r);
  Found summed(InstId id, const rules::Application &app, uint32_t r);
  Found rooted(const Found &squares);

  ir::Program &program_;
  CheckResult &result_;
  rules::Rules rules_;
  llvm::DenseSet<uint32_t> reported_;       // instructions with a finding
  OperandList operands_;                    // of the instruction
  llvm::DenseMap<uint32_t, Squares> found_; // by value
};

CountedNorms::Found CountedNorms::of(ValueId value) const {
  const auto at = found_.find(value.index);
  return at == found_.end() ? Found() : Found(at->second);
}

AxisSet CountedNorms::equal(ValueId value) const {
  const ir::TypeId type = result_.types[value.index];
  if (!type.valid())
    return {};
  const ir::Type &is = program_.types[type];
  return is.same_on_all_ranks() - is.zero();
}

// What is put together out of squares, or out of roots of them; none of both.
CountedNorms::Found CountedNorms::joined(llvm::ArrayRef<ValueId> operands) const {
  Found all;
  for (ValueId value : operands)
    if (const Found one = of(value)) {
      all = all.value_or(Squares{{}, one->rooted});
      if (one->rooted != all->rooted)
        return std::nullopt;
      all->equal |= one->equal;
      if (one->sum.valid())
        all->sum = one->sum, all->operand = one->operand, all->counted = one->counted;
    }
  return all;
}

// Squares that all ranks have alike, added up over them, unless that is divided by their number.
CountedNorms::Found CountedNorms::summed(InstId id, const rules::Application &app, uint32_t r) {
  const uint32_t operand = std::min<uint32_t>(r, operands_.values.size() - 1);
  Found squares = of(operands_.values[operand]);
  if (!squares || squares->rooted)
    return std::nullopt;
  const AxisSet axes = rules::communicated_axes(app);
  const ir::MeshId mesh = program_.contexts[program_.insts[id].context].mesh;
  const ValueId sum = program_.insts[id].result(r);
  const ir::AttrValue *by = app.attr("op");
  const bool averages = by && rules::combiner_of(program_, *by) != ir::Combiner::Sum;
  const AxisSet counted =
      averages ? AxisSet()
               : (squares->equal & axes) - result_.gradual->numbers().averaged(sum, mesh);
  squares->equal -= axes;
  if (counted)
    squares->sum = id, squares->operand = operand, squares->counted = counted;
  return squares;
}

CountedNorms::Found CountedNorms::rooted(const Found &squares) {
  if (!squares || squares->rooted)
    return std::nullopt;
  if (squares->sum.valid() && reported_.insert(squares->sum.index).second)
    result_.findings.push_back(
        {rules::NormOvercount{{squares->operand}, squares->counted}, Place::inst(squares->sum)});
  return Squares{squares->equal, true};
}

CountedNorms::Found CountedNorms::made(InstId id, const rules::Application &app, uint32_t r) {
  if (app.op.form == rules::OpForm::Transition)
    return rules::unstated_words(app.op.transition).reduces ? summed(id, app, r) : Found();
  // What one rank alone runs counts once.
  if (app.op.form != rules::OpForm::Equation || !app.op.row || app.attr("alone") ||
      reported_.contains(id.index))
    return std::nullopt;
  llvm::SmallVector<ValueId, 4> operands;
  operands_.operands_of_result(r, program_.insts[id].result_count, operands);
  if (app.op.computes(Computes::Norm)) {
    if (app.attr("dim"))
      return std::nullopt;
    Squares root{{}, true};
    for (ValueId value : operands)
      root.equal |= of(value) ? of(value)->equal : equal(value);
    return root;
  }
  if (squares(app, operands)) {
    const Found root = of(operands[0]);
    return Squares{root && root->rooted ? root->equal : equal(operands[0])};
  }
  if (takes_root(app))
    return rooted(of(operands[0]));
  const rules::Equation &row = app.op.row->equation.equation;
  const bool sums = app.op.computes(Computes::Add) ||
                    (app.op.computes(Computes::ReduceSum) && row.terms[0].divisors == 0);
  if (!sums && !moves_elements(app.op))
    return std::nullopt;
  const Found all = joined(operands);
  return sums && all && all->rooted ? std::nullopt : all;
}

void CountedNorms::run() {
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst inst = program_.insts[InstId{i}];
    operands_.read(program_, inst.operands);
    if (operands_.values.empty())
      continue;
    const auto args = operands_.args(result_.types, result_.shapes);
    const rules::Application app{
        program_, rules_.resolve(inst.op), inst.attrs, inst.context, operands_.slots, args, {}};
    for (uint32_t r = 0; r < inst.result_count; ++r)
      if (const Found found = made(InstId{i}, app, r))
        found_[inst.result(r).index] = *found;
  }
}

} // namespace

void judge_counted_norms(ir::Program &program, CheckResult &result) {
  CountedNorms(program, result).run();
}

} // namespace spmd::checker
