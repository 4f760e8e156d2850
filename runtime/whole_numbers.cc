// Reads the equations of the rows, and the numbers that programs state.
#include "runtime/whole_numbers.h"

#include "rules/apply.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace spmd::runtime {

// `mul %x, 0.01`: one step of rounding, in which ranks and the reference part.
static bool has_fraction(const ir::Program &program, ir::BlockId operands) {
  return llvm::any_of(program.blocks[operands], [&](const ir::Operand &operand) {
    if (operand.form == ir::Operand::Form::List)
      return has_fraction(program, operand.as_list());
    if (operand.form != ir::Operand::Form::Literal)
      return false;
    const ir::AttrValue &literal = program.literals[operand.index];
    return literal.form == ir::AttrForm::Float &&
           std::trunc(literal.as_number()) != literal.as_number();
  });
}

std::optional<ir::InstId> first_not_whole(ir::Program &program) {
  rules::Rules rules(program);
  for (uint32_t i = 0; i < program.insts.size(); ++i) {
    const ir::Inst &inst = program.insts[ir::InstId{i}];
    const rules::OpDef *row = rules.resolve(inst.op).row;
    bool whole = !row || !row->equation.equation.has_function;
    for (unsigned t = 0; row && t < row->equation.equation.term_count; ++t)
      whole &= row->equation.equation.terms[t].divisors == 0;
    if (!whole || has_fraction(program, inst.operands))
      return ir::InstId{i};
  }
  return std::nullopt;
}

} // namespace spmd::runtime
