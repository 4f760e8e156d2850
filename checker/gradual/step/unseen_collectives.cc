// Two passes: forward, which values a gradient would reach; backward, which a loss is made of.
#include "checker/gradual/step/unseen_collectives.h"

#include "checker/operand_list.h"
#include "checker/walk/gradients/backward_slice.h"

#include "rules/apply.h"
#include "rules/transitions/call.h"
#include "rules/violations/gradients.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::InstId;
using ir::ValueId;

namespace {

// Values that depend on a parameter by operations that autograd sees. What is said of a result
// counts; else one made under `no_grad`, as inside of a function with a backward of its own, has
// none.
llvm::BitVector with_gradient(const ir::Program &program) {
  llvm::BitVector found(program.values.size());
  for (const ir::Param &param : program.params)
    if (param.role == ir::Role::Param &&
        program.values[param.value].requires_grad != ir::Tristate::False)
      found.set(param.value.index);
  OperandList operands;
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i) {
    const ir::Inst &inst = program.insts[InstId{i}];
    operands.read(program, inst.operands);
    const bool passes =
        program.contexts[inst.context].grad &&
        llvm::any_of(operands.values, [&](ValueId v) { return found.test(v.index); });
    for (uint32_t r = 0; r < inst.result_count; ++r) {
      const ir::Tristate stated = program.values[inst.result(r)].requires_grad;
      if (stated == ir::Tristate::True || (stated == ir::Tristate::Unstated && passes))
        found.set(inst.result(r).index);
    }
  }
  return found;
}

// Behind the result of a function with a backward of its own, that is for this backward to do.
llvm::BitVector parts_of_losses(const ir::Program &program, const llvm::BitVector &carries) {
  llvm::BitVector found(program.values.size());
  for (const ir::Output &output : program.outputs)
    if (output.role == ir::OutputRole::Loss)
      found.set(output.value.index);
  OperandList operands;
  for (uint32_t i = program.main.last.index; i-- > program.main.first.index;) {
    const ir::Inst &inst = program.insts[InstId{i}];
    if (inst.phase == ir::Phase::Backward && inst.result_count == 1 && inst.bwd_of.valid() &&
        program.values[inst.first_result].grad_of == inst.bwd_of)
      found.set(inst.bwd_of.index); // where a backward begins
    bool used = false, stated = false;
    for (uint32_t r = 0; r < inst.result_count; ++r) {
      used |= found.test(inst.result(r).index);
      stated |= program.values[inst.result(r)].requires_grad == ir::Tristate::True;
    }
    if (!used || !is_forward(inst))
      continue;
    operands.read(program, inst.operands);
    if (stated && llvm::none_of(operands.values, [&](ValueId v) { return carries.test(v.index); }))
      continue;
    for (ValueId value : operands.values)
      found.set(value.index);
  }
  return found;
}

} // namespace

void judge_unseen_collectives(ir::Program &program, CheckResult &result) {
  const llvm::BitVector carries = with_gradient(program),
                        in_loss = parts_of_losses(program, carries);
  rules::Rules rules(program);
  OperandList operands;
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i) {
    const ir::Inst &inst = program.insts[InstId{i}];
    const rules::ResolvedOp &op = rules.resolve(inst.op);
    if (op.form != rules::OpForm::Transition || !is_forward(inst) || inst.result_count == 0 ||
        !program.contexts[inst.context].grad)
      continue;
    const ValueId made = inst.first_result;
    if (program.values[made].requires_grad != ir::Tristate::False || !in_loss.test(made.index))
      continue;
    operands.read(program, inst.operands);
    const auto *from =
        llvm::find_if(operands.values, [&](ValueId v) { return carries.test(v.index); });
    if (from == operands.values.end())
      continue;
    const auto args = operands.args(result.types, result.shapes);
    rules::Application app{program, op, inst.attrs, inst.context, operands.slots, args, {}};
    const uint32_t operand = static_cast<uint32_t>(from - operands.values.begin());
    if (ir::AxisSet axes = rules::communicated_axes(app))
      result.findings.push_back({rules::UnseenCollective{{operand}, axes}, Place::inst(InstId{i})});
  }
}

} // namespace spmd::checker
