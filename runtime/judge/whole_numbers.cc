// Reads the equations of the rows, and the numbers that programs state.
#include "runtime/judge/whole_numbers.h"

#include "rules/apply.h"
#include "rules/transitions/call.h"

#include "llvm/ADT/STLExtras.h"

#include <bit>
#include <cmath>

namespace spmd::runtime {

// `mul %x, 0.01`: one step of rounding, in which ranks and the reference part.
static bool has_fraction(const ir::Program &program, ir::OperandsId operands) {
  return llvm::any_of(program.operand_lists[operands], [&](const ir::Operand &operand) {
    if (operand.form == ir::Operand::Form::List)
      return has_fraction(program, operand.as_list());
    if (operand.form != ir::Operand::Form::Literal)
      return false;
    const ir::AttrValue &literal = program.literals[operand.index];
    return literal.form == ir::AttrForm::Float &&
           std::trunc(literal.as_number()) != literal.as_number();
  });
}

// A mean over three ranks: each rounds its quotient, a half is exact.
static bool is_rounded_average(ir::Program &program, const rules::ResolvedOp &op,
                               const ir::Inst &inst) {
  if (op.form != rules::OpForm::Transition)
    return false;
  rules::Application app{program, op, inst.attrs, inst.context, {}, {}, {}};
  rules::Outcome ignored;
  std::optional<rules::TransitionCall> call = rules::read_call(app, ignored);
  return call && call->combiner == ir::Combiner::Avg &&
         !std::has_single_bit(static_cast<uint64_t>(call->axes.size()));
}

std::optional<ir::InstId> first_not_whole(ir::Program &program) {
  rules::Rules rules(program);
  for (uint32_t i = 0; i < program.insts.size(); ++i) {
    const ir::Inst &inst = program.insts[ir::InstId{i}];
    const rules::ResolvedOp &op = rules.resolve(inst.op);
    const rules::OpDef *row = op.row;
    bool whole = !row || !row->equation.equation.has_function;
    for (unsigned t = 0; row && t < row->equation.equation.term_count; ++t)
      whole &= row->equation.equation.terms[t].divisors == 0;
    if (!whole || has_fraction(program, inst.operands) || is_rounded_average(program, op, inst))
      return ir::InstId{i};
  }
  return std::nullopt;
}

} // namespace spmd::runtime
