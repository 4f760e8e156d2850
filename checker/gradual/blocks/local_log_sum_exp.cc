// Follows the steps of a logarithm of a sum of exponentials, one by one.
#include "checker/gradual/blocks/local_log_sum_exp.h"

#include "checker/gradual/axis_size_numbers.h"
#include "checker/gradual/blocks/extremes.h"

#include "rules/apply.h"
#include "rules/ops/op.h"
#include "rules/transitions/call.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::ValueId;
using rules::Computes;

// Whether a row is a product of its operands, or a sum of such ones.
static bool multiplies(const rules::ResolvedOp &op) {
  const rules::Equation &row = op.row->equation.equation;
  const bool lists =
      llvm::any_of(llvm::ArrayRef(row.operands).take_front(row.operand_count),
                   [](const auto &operand) { return operand.list == rules::ListForm::Multiplied; });
  return lists || (row.term_count == 1 && row.terms[0].atom_count > 1);
}

LocalLogSumExp::Facts LocalLogSumExp::infer(const rules::Application &app,
                                            llvm::ArrayRef<ValueId> operands) const {
  Facts facts;
  if (operands.empty() || app.args.empty())
    return facts;
  const Facts first = steps_.lookup(operands[0].index);
  if (app.op.form == rules::OpForm::Transition) {
    rules::Outcome ignored;
    const auto call = rules::unstated_words(app.op.transition).reduces
                          ? rules::read_call(app, ignored)
                          : std::nullopt;
    if (call && call->combiner.value_or(ir::Combiner::Sum) == ir::Combiner::Sum) {
      facts.summed = first.log & call->axes.all();
      facts.unscaled = first.sum & call->axes.all();
    }
    return facts;
  }
  if (app.op.form != rules::OpForm::Equation || !app.op.row)
    return facts;
  if (app.op.computes(Computes::ReduceMax))
    facts.greatest = taken_axes(app);
  else if (app.op.computes(Computes::Exponential) && app.op.row->placed.empty())
    facts.powers = first.shifted;
  else if (app.op.computes(Computes::ReduceSum))
    facts.sum = first.powers & taken_axes(app);
  else if (app.op.computes(Computes::Abs))
    facts.sum = first.sum;
  else if (app.op.computes(Computes::Logarithm))
    facts.log = first.sum;
  else if (app.op.computes(Computes::LogSumExp) && operands.size() == 1)
    facts.log = taken_axes(app);
  else if (!app.op.row->chooses.empty() || app.op.computes(Computes::Maximum))
    for (ValueId operand : operands)
      facts.greatest |= steps_.lookup(operand.index).greatest;
  else if (operands.size() == 1 && moves_elements(app.op))
    return first;
  if (operands.size() != 2)
    return facts;
  const Facts second = steps_.lookup(operands[1].index);
  if (app.op.computes(Computes::Sub))
    facts.shifted = app.type(app.args[0]).sharded() & second.greatest;
  if (app.op.computes(Computes::Add))
    facts.log = (first.log & second.greatest) | (first.greatest & second.log);
  // What is summed of products of tensors; a number for each row may bring them to one scale.
  if (multiplies(app.op) && !rules::is_product(app.op))
    facts.powers = first.powers | second.powers;
  return facts;
}

} // namespace spmd::checker
