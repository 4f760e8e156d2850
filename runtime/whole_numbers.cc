// Reads the equations of the rows.
#include "runtime/whole_numbers.h"

#include "rules/apply.h"

namespace spmd::runtime {

std::optional<ir::InstId> first_not_whole(ir::Program &program) {
  rules::Rules rules(program);
  for (uint32_t i = 0; i < program.insts.size(); ++i) {
    const rules::OpDef *row = rules.resolve(program.insts[ir::InstId{i}].op).row;
    bool whole = !row || !row->equation.equation.has_function;
    for (unsigned t = 0; row && t < row->equation.equation.term_count; ++t)
      whole &= row->equation.equation.terms[t].divisors == 0;
    if (!whole)
      return ir::InstId{i};
  }
  return std::nullopt;
}

} // namespace spmd::runtime
