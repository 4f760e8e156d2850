// What an edit would change: only instructions that depend on it are typed again, and everything is
// put back.
#include "checker/walk/edits.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::InstId;
using ir::ValueId;

void Edits::begin(const Edit &edit) {
  state_.edit = &edit;
  state_.main = {};
  undo_.clear();
  changed_.clear();
  run_edited_ = functions_that_run(edit.inst);
  if (in_body())
    std::swap(kept_bodies_, state_.bodies);
}

void Edits::end() {
  state_.edit = nullptr;
  if (in_body())
    std::swap(kept_bodies_, state_.bodies);
  kept_bodies_ = {};
  for (const Before &entry : llvm::reverse(undo_))
    state_.learn(entry.value, entry.known);
}

InstId Edits::first() const { return in_body() ? program_.main.first : state_.edit->inst; }

bool Edits::concerns(InstId id) const {
  const ir::Inst &inst = program_.insts[id];
  auto is_result = [&](ValueId value) {
    return value.index >= inst.first_result.index &&
           value.index < inst.first_result.index + inst.result_count;
  };
  return id == state_.edit->inst || llvm::any_of(state_.edit->gradients, is_result) ||
         touched(inst) || runs_edited(inst);
}

void Edits::retype(InstId id, llvm::function_ref<void(InstId)> type) {
  const ir::Inst inst = program_.insts[id];
  const size_t first = undo_.size();
  for (uint32_t r = 0; r < inst.result_count; ++r)
    remember(inst.result(r));
  type(id);
  for (size_t at = first; at < first + inst.result_count; ++at)
    if (undo_[at].known != state_.known(undo_[at].value))
      changed_.insert(undo_[at].value.index);
}

bool Edits::apply(ir::Inst &inst) {
  if (state_.edit->drop) {
    drop(inst);
    return true;
  }
  edit_operands(inst);
  if (state_.edit->attrs.valid())
    inst.attrs = state_.edit->attrs;
  return false;
}

bool Edits::touched(const ir::Inst &inst) const {
  llvm::SmallVector<ir::OperandsId, 4> open{inst.operands};
  while (!open.empty())
    for (const ir::Operand &operand : program_.operand_lists[open.pop_back_val()]) {
      if (operand.is_value() && changed_.count(operand.index))
        return true;
      if (operand.form == ir::Operand::Form::List)
        open.push_back(operand.as_list());
    }
  return false;
}

// The instruction, or one member of a coalesced call, is gone: whoever used its result uses its
// operand.
void Edits::drop(const ir::Inst &inst) {
  uint32_t member = state_.edit->member;
  if (member >= inst.result_count || member >= state_.args.size())
    return;
  state_.learn(inst.result(member), state_.args[member]);
}

// Gradients of edited operands go through the dual; one that refuses them leaves them as they are,
// and the claims on them tell.
void Edits::apply_dual_to_gradients(const ir::Inst &inst) {
  const Edit &edit = *state_.edit;
  if (edit.gradients.empty())
    return;
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    ValueId result = inst.result(r);
    if (!llvm::is_contained(edit.gradients, result))
      continue;
    if (std::optional<rules::TensorInfo> after =
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

// Those in whose bodies, or in bodies that they run, the instruction is; empty: it is in the main
// body.
std::vector<bool> Edits::functions_that_run(InstId id) {
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

bool Edits::runs_edited(const ir::Inst &inst) const {
  bool runs = false;
  if (in_body())
    each_function(program_, inst, [&](ir::FunctionId each) { runs |= run_edited_[each.index]; });
  return runs;
}

// What the edit makes of operands. In a body it may refuse them as one call has them.
void Edits::edit_operands(const ir::Inst &inst) {
  const bool main = state_.body_result == &state_.main;
  for (const auto &[position, arg] : state_.edit->operands) {
    if (position >= state_.args.size())
      continue;
    std::optional<rules::TensorInfo> made = arg;
    if (!main)
      made = transition(state_.edit->mover, state_.edit->operand_attrs, inst.context,
                        state_.args[position]);
    if (made)
      state_.args[position] = *made;
    else
      state_.body_result->refused = true;
  }
}

std::optional<rules::TensorInfo> Edits::transition(ir::OpNameId op, ir::AttrsId attrs,
                                                   ir::ContextId context,
                                                   rules::TensorInfo operand) {
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
  return rules::TensorInfo{outcome.types[0], outcome.shapes[0], outcome.sizes[0]};
}

} // namespace spmd::checker
