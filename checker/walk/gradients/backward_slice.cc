// What a value is made of, through lists and views.
#include "checker/walk/gradients/backward_slice.h"

#include "rules/ops/registry.h"

namespace spmd::checker {

using ir::InstId;
using ir::Phase;
using ir::ValueId;

bool is_forward(const ir::Inst &inst) {
  return inst.phase == Phase::Unstated || inst.phase == Phase::Forward;
}

bool accumulates(const ir::Program &program, InstId id) {
  const ir::Inst &inst = program.insts[id];
  return inst.phase == ir::Phase::Backward && inst.result_count == 1 &&
         program.values[inst.first_result].alias_of.valid() &&
         op_of(program, id).computes(rules::Computes::Add);
}

bool may_begin_backward(const ir::Program &program, rules::Rules &rules, InstId id) {
  const ir::Inst &inst = program.insts[id];
  if (inst.phase != Phase::Backward || inst.result_count != 1 || !inst.loc.valid())
    return false;
  const rules::OpDef *row = rules.resolve(inst.op).row;
  return row && row->constant != rules::OpDef::Constant::No;
}

rules::ResolvedOp op_of(const ir::Program &program, InstId inst) {
  return rules::resolve_op(program, program.insts[inst].op);
}

llvm::SmallVector<ValueId, 4> sources(const ir::Program &program, InstId id, ValueId result) {
  const ir::Inst &inst = program.insts[id];
  llvm::SmallVector<ValueId, 4> tensors = tensors_of(program, id);
  llvm::ArrayRef<ir::Operand> operands = program.operand_lists[inst.operands];
  uint32_t place = result.index - inst.first_result.index;
  if (inst.result_count > 1 && !operands.empty() &&
      operands.front().form == ir::Operand::Form::List &&
      program.operand_lists[operands.front().as_list()].size() == inst.result_count &&
      tensors.size() >= inst.result_count)
    return {tensors[place]};
  return tensors;
}

ValueId parameter_behind(const ir::Program &program, ValueId value) {
  for (size_t step = 0; step < kReach; ++step) {
    InstId inst = defining_inst(program, value);
    if (!inst.valid()) {
      const ir::Param *param = program.find_param(value);
      return param && param->role == ir::Role::Param ? value : ValueId{};
    }
    llvm::SmallVector<ValueId, 4> tensors = sources(program, inst, value);
    if (tensors.size() != 1)
      return {};
    value = tensors.front();
  }
  return {};
}

void add_needed(const ir::Program &program, llvm::BitVector &values,
                llvm::function_ref<bool(ir::InstId)> has_effect) {
  for (uint32_t i = program.main.last.index; i-- > program.main.first.index;) {
    const ir::InstId id{i};
    const ir::Inst &inst = program.insts[id];
    bool needed = has_effect(id);
    for (uint32_t r = 0; r < inst.result_count && !needed; ++r)
      needed = values.test(inst.result(r).index);
    for (ir::ValueId value : needed ? tensors_of(program, id) : llvm::SmallVector<ir::ValueId, 4>())
      values.set(value.index);
  }
}

} // namespace spmd::checker
