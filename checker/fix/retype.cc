// What an edit would change: only instructions that depend on it are typed again, and everything is
// put back.
#include "checker/walk/walk.h"

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
  uint32_t member = state_.edit->member;
  if (member >= inst.result_count || member >= state_.args.size())
    return;
  state_.learn(inst.result(member), state_.args[member]);
}

// Gradients of edited operands go through the dual; one that refuses them leaves them as they are,
// and the claims on them tell.
void Walk::backward(const Edit &edit, const ir::Inst &inst) {
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    ValueId result = inst.result(r);
    if (!llvm::is_contained(edit.gradients, result))
      continue;
    if (std::optional<rules::Arg> after =
            transition(edit.dual_op, edit.dual_attrs, inst.context, state_.known(result)))
      state_.learn(result, *after);
  }
}

namespace {

void each_function(const ir::Program &program, const ir::Inst &inst,
                   llvm::function_ref<void(ir::FunctionId)> visit) {
  for (const ir::Attr &attr : program.attrs[inst.attrs].attrs)
    if (attr.value.form == ir::AttrForm::Function)
      visit(attr.value.as<ir::FunctionId>());
}

} // namespace

// Those in whose bodies, or in bodies that they run, the instruction is; empty: it is in the main body.
std::vector<bool> Walk::functions_that_run(InstId id) {
  if (id.index >= program_.main.first.index && id.index < program_.main.last.index)
    return {};
  const uint32_t count = static_cast<uint32_t>(program_.functions.size());
  llvm::SmallVector<ir::FunctionId, 8> open;
  bool first = run_by_.empty();
  run_by_.resize(count);
  for (uint32_t f = 0; f < count; ++f) {
    const ir::Function &function = program_.functions[ir::FunctionId{f}];
    if (function.opaque)
      continue;
    if (id.index >= function.body.first.index && id.index < function.body.last.index)
      open.push_back(ir::FunctionId{f});
    for (InstId i = function.body.first; first && i.index < function.body.last.index; ++i.index)
      each_function(program_, program_.insts[i],
                    [&](ir::FunctionId run) { run_by_[run.index].push_back(ir::FunctionId{f}); });
  }
  std::vector<bool> found(count);
  while (!open.empty()) {
    ir::FunctionId next = open.pop_back_val();
    if (!found[next.index])
      open.append(run_by_[next.index].begin(), run_by_[next.index].end());
    found[next.index] = true;
  }
  return found;
}

bool Walk::runs_one_of(const ir::Inst &inst, const std::vector<bool> &functions) const {
  bool runs = false;
  if (!functions.empty())
    each_function(program_, inst, [&](ir::FunctionId each) { runs |= functions[each.index]; });
  return runs;
}

// What the edit makes of operands. In a body it may refuse them as one call has them.
void Walk::edit_operands(const ir::Inst &inst) {
  const bool main = state_.trail == &state_.main;
  for (const auto &[position, arg] : state_.edit->operands) {
    if (position >= state_.args.size())
      continue;
    std::optional<rules::Arg> made = arg;
    if (!main)
      made = transition(state_.edit->mover, state_.edit->mover_attrs, inst.context,
                        state_.args[position]);
    if (made)
      state_.args[position] = *made;
    else
      state_.trail->refused = true;
  }
}

std::optional<std::vector<Finding>> Walk::retype(const Edit &edit) {
  undo_.clear();
  state_.main = {};
  llvm::DenseSet<uint32_t> changed;
  state_.edit = &edit;
  const std::vector<bool> edited = functions_that_run(edit.inst);
  // Bodies that were typed so far are those without the edit.
  std::vector<TypedBody> instances;
  ir::IndexTable table;
  if (!edited.empty())
    std::swap(instances, state_.bodies), std::swap(table, body_table_);
  uint32_t first_inst = edited.empty() ? edit.inst.index : program_.main.first.index;
  for (uint32_t i = first_inst; i < program_.main.last.index; ++i) {
    const ir::Inst inst = program_.insts[InstId{i}];
    bool gradient = llvm::any_of(edit.gradients, [&](ValueId value) {
      return value.index >= inst.first_result.index &&
             value.index < inst.first_result.index + inst.result_count;
    });
    if (i != edit.inst.index && !gradient && !touched(inst, changed) && !runs_one_of(inst, edited))
      continue;
    size_t first = undo_.size();
    for (uint32_t r = 0; r < inst.result_count; ++r)
      remember(inst.result(r));
    instruction(InstId{i});
    for (size_t at = first; at < first + inst.result_count; ++at)
      if (undo_[at].known != state_.known(undo_[at].value))
        changed.insert(undo_[at].value.index);
  }
  for (uint32_t i = 0; i < program_.outputs.size(); ++i)
    if (changed.count(program_.outputs[i].value.index))
      output(i);
  state_.edit = nullptr;
  CheckResult made;
  Collector collector(program_, state_.bodies);
  collector.add(state_.main, made);
  if (!edited.empty())
    std::swap(instances, state_.bodies), std::swap(table, body_table_);
  for (const Before &entry : llvm::reverse(undo_))
    state_.learn(entry.value, entry.known);
  if (collector.refused())
    return std::nullopt;
  return std::move(made.findings);
}

std::optional<rules::Arg> Walk::transition(ir::OpNameId op, ir::AttrsId attrs,
                                           ir::ContextId context, rules::Arg operand) {
  if (!op.valid())
    return std::nullopt;
  const rules::ResolvedOp &resolved = state_.rules.resolve(op);
  if (resolved.form != rules::OpForm::Transition && resolved.boundary != rules::Boundary::Scale)
    return std::nullopt;
  rules::Slot slot;
  slot.form = rules::Slot::Form::Tensor;
  slot.count = 1;
  rules::ResultClaim claim;
  const rules::Outcome &outcome =
      state_.rules.apply({program_, resolved, attrs, context, slot, operand, claim});
  if (!outcome.violations.empty())
    return std::nullopt;
  return rules::Arg{outcome.types[0], outcome.shapes[0], outcome.sizes[0]};
}

} // namespace spmd::checker
