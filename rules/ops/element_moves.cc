// Read off the equation of the row, which says how elements go to results, and off what the row adds.
#include "rules/ops/element_moves.h"

#include "rules/application.h"
#include "rules/boundary/op.h"
#include "rules/ops/op.h"

namespace spmd::rules {

bool moves_elements(const ResolvedOp &op) {
  if (op.form == OpForm::Boundary)
    return passes_data(op.boundary);
  if (op.form != OpForm::Equation || !op.row)
    return false;
  const Equation &row = op.row->equation.equation;
  if (op.row->new_elements || row.sum_count != 1 || row.term_count != 1 ||
      row.terms[0].atom_count != 1 || row.terms[0].divisors != 0 || row.terms[0].negative ||
      row.atoms[0].form != Atom::Form::Ref)
    return false;
  const Ref &read = row.refs[row.atoms[0].first];
  return read.role == RefRole::Value && read.index == kNoFactor &&
         read.operand != kGenerator &&
         row.operands[read.operand].list != ListForm::Multiplied; // as `einsum` does
}

} // namespace spmd::rules
