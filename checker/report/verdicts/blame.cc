// Operands are found by the fields of violations, so a new violation needs nothing here.
#include "checker/report/verdicts/blame.h"

#include "checker/program_queries.h"

#include "rules/violations/gradients.h"
#include "rules/violations/local.h"

#include <variant>

namespace spmd::checker {

llvm::SmallVector<uint32_t, 2> operands_named(const rules::Violation &violation) {
  llvm::SmallVector<uint32_t, 2> named;
  rules::for_each_field(violation, [&](std::string_view name, const rules::Field &field) {
    uint32_t index = 0;
    if (const auto *operand = std::get_if<rules::OperandIndex>(&field))
      index = operand->index;
    else if (const auto *addend = std::get_if<rules::Addend>(&field);
             addend && addend->form == rules::Addend::Form::Operand)
      index = addend->operand.index;
    else
      return;
    if (name == "operand" || name == "gradient")
      named.insert(named.begin(), index);
    else
      named.push_back(index);
  });
  return named;
}

ir::ValueId blamed_parameter(const ir::Program &program, const Finding &finding) {
  if (const auto *wrong = finding.violation.as<rules::UnreducedGradient>())
    return wrong->value;
  if (const auto *drift = finding.violation.as<rules::CopiesDrift>())
    return drift->value;
  if (finding.place.form != Place::Form::Inst)
    return {};
  llvm::SmallVector<ir::ValueId, 4> tensors = tensors_of(program, finding.place.as_inst());
  for (uint32_t operand : operands_named(finding.violation))
    if (operand < tensors.size() && program.find_param(tensors[operand]))
      return tensors[operand];
  return {};
}

} // namespace spmd::checker
