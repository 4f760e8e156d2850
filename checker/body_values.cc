// Linear searches: asked for findings that are shown, of no others.
#include "checker/body_values.h"

#include "checker/program_queries.h"

namespace spmd::checker {
namespace {

bool declares(const ir::Function &function, ir::ValueId value) {
  for (const ir::FunctionParam &param : function.params)
    if (param.value == value)
      return true;
  return false;
}

uint32_t position_of(const ir::Function &function, ir::ValueId param) {
  uint32_t position = 0;
  while (function.params[position].value != param)
    ++position;
  return position;
}

} // namespace

std::optional<ir::FunctionId> function_of_param(const ir::Program &program, ir::ValueId value) {
  for (uint32_t i = 0; i < program.functions.size(); ++i)
    if (declares(program.functions[ir::FunctionId{i}], value))
      return ir::FunctionId{i};
  return std::nullopt;
}

llvm::SmallVector<ir::ValueId, 2> arguments_for_param(const ir::Program &program,
                                                      ir::FunctionId function, ir::ValueId param) {
  llvm::SmallVector<ir::ValueId, 2> passed;
  const ir::Function &callee = program.functions[function];
  const uint32_t position = position_of(callee, param);
  for (uint32_t i = 0; i < program.insts.size(); ++i) {
    const ir::Inst &inst = program.insts[ir::InstId{i}];
    for (const ir::Attr &attr : program.attrs[inst.attrs].attrs) {
      if (attr.value.form != ir::AttrForm::Function || attr.value.as<ir::FunctionId>() != function)
        continue;
      llvm::SmallVector<ir::ValueId, 4> operands = tensors_of(program, ir::InstId{i});
      // A branch has its condition before the parameters. Otherwise the positions are the op's own
      // affair.
      size_t first = operands.size() - std::min(operands.size(), callee.params.size());
      if (first <= 1 && operands.size() == callee.params.size() + first)
        passed.push_back(operands[first + position]);
    }
  }
  return passed;
}

ir::ValueId returned_as(const ir::Program &program, ir::InstId call, uint32_t result) {
  const ir::AttrValue *body = program.find(program.insts[call].attrs, "body");
  if (!body || body->form != ir::AttrForm::Function)
    return {};
  const ir::Function &callee = program.functions[body->as<ir::FunctionId>()];
  if (callee.opaque || result >= program.operand_lists[callee.results].size())
    return {};
  const ir::Operand &returned = program.operand_lists[callee.results][result];
  return returned.is_value() ? returned.as_value() : ir::ValueId();
}

} // namespace spmd::checker
