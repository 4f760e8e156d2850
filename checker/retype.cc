// What an edit would change: only instructions that depend on it are typed again, and everything is
// put back.
#include "checker/walk.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::InstId;
using ir::ValueId;

bool Walk::touched(const ir::Inst &inst, const llvm::DenseSet<uint32_t> &changed) const {
  llvm::SmallVector<ir::BlockId, 4> open{inst.operands};
  while (!open.empty())
    for (const ir::Operand &operand : program_.blocks[open.pop_back_val()]) {
      if (operand.is_value() && changed.count(operand.index))
        return true;
      if (operand.form == ir::Operand::Form::List)
        open.push_back(operand.as_list());
    }
  return false;
}

// The instruction, or one member of a coalesced call, is gone: whoever used its result uses its
// operand.
void Walk::dropped(const ir::Inst &inst) {
  uint16_t member = edit_->member;
  if (member >= inst.result_count || member >= args_.size())
    return;
  learn(inst.result(member), args_[member]);
}

// Gradients of edited operands go through the dual; one that refuses them leaves them as they are,
// and the claims on them tell.
void Walk::backward(const Edit &edit, const ir::Inst &inst) {
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    ValueId result = inst.result(r);
    if (!llvm::is_contained(edit.gradients, result))
      continue;
    if (std::optional<rules::Arg> after =
            transition(edit.dual_op, edit.dual_attrs, inst.context, known(result)))
      learn(result, *after);
  }
}

std::vector<Finding> Walk::retype(const Edit &edit) {
  undo_.clear();
  main_ = {};
  llvm::DenseSet<uint32_t> changed;
  edit_ = &edit;
  for (uint32_t i = edit.inst.index; i < program_.main.last.index; ++i) {
    const ir::Inst inst = program_.insts[InstId{i}];
    bool gradient = llvm::any_of(edit.gradients, [&](ValueId value) {
      return value.index >= inst.first_result.index &&
             value.index < inst.first_result.index + inst.result_count;
    });
    if (i != edit.inst.index && !gradient && !touched(inst, changed))
      continue;
    size_t first = undo_.size();
    for (uint32_t r = 0; r < inst.result_count; ++r)
      remember(inst.result(r));
    instruction(InstId{i});
    for (size_t at = first; at < first + inst.result_count; ++at)
      if (undo_[at].known != known(undo_[at].value))
        changed.insert(undo_[at].value.index);
  }
  for (uint32_t i = 0; i < program_.outputs.size(); ++i)
    if (changed.count(program_.outputs[i].value.index))
      output(i);
  edit_ = nullptr;
  CheckResult made;
  Collector(program_, instances_).add(main_, made);
  for (const Before &entry : llvm::reverse(undo_))
    learn(entry.value, entry.known);
  return std::move(made.findings);
}

std::optional<rules::Arg> Walk::transition(ir::OpNameId op, ir::AttrsId attrs,
                                           ir::ContextId context, rules::Arg operand) {
  const rules::ResolvedOp &resolved = rules_.resolve(op);
  if (resolved.form != rules::OpForm::Transition)
    return std::nullopt;
  rules::Slot slot;
  slot.form = rules::Slot::Form::Tensor;
  slot.count = 1;
  rules::ResultClaim claim;
  const rules::Outcome &outcome =
      rules_.apply({program_, resolved, attrs, context, slot, operand, claim});
  if (!outcome.violations.empty())
    return std::nullopt;
  return rules::Arg{outcome.types[0], outcome.shapes[0], outcome.sizes[0]};
}

} // namespace spmd::checker
