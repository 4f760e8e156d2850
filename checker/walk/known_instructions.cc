// Instructions without findings are typed once per distinct operands and statements. What depends
// on the place in the program is asked each time: what is stale, what was gathered, the root of the
// gradients.
#include "checker/walk/known_instructions.h"

namespace spmd::checker {

using ir::ValueId;

namespace {

// Marks in a key what is no number of a value: above all of these.
enum Mark : uint32_t { kLiteral = 0xFFFF'FFF0, kList, kGap, kEnd, kName, kWritten };

} // namespace

InstructionCache::Entry *KnownInstructions::find(const ir::Inst &inst) {
  before_.reset();
  if (!make_key(inst))
    return nullptr;
  InstructionCache::Entry *entry = state_.cache.find();
  if (!entry)
    before_ = counted();
  return entry;
}

// All that typing an instruction depends on, its place in the program apart. Notes what it writes.
// False if its place matters: an operand is stale, or open.
bool KnownInstructions::make_key(const ir::Inst &inst) {
  has_gradients_ = false;
  auto &key = state_.cache.key();
  const size_t most = 4 + 4 * size_t(inst.result_count);
  llvm::ArrayRef<ir::Operand> operands = program_.blocks[inst.operands];
  key.resize_for_overwrite(most + 4 * operands.size());
  uint32_t *at = key.data();
  targets_.clear();
  const bool open = undecided_.any();
  bool matters = inst.result_count >= 1u << 16; // which has no place in the key
  auto add_value = [&](ValueId value, bool written) __attribute__((always_inline)) {
    matters |= state_.storage.is_stale(value) || (open && undecided_.row(value) != 0);
    *at++ = state_.number(value);
    if (written) {
      targets_.push_back(value);
      *at++ = kWritten;
    }
  };
  *at++ = inst.op.index;
  *at++ = inst.attrs.index;
  *at++ = inst.context.index | inst.result_count << 16;
  if (inst.result_count) {
    llvm::ArrayRef<ir::Value> values =
        program_.values.all().slice(inst.first_result.index, inst.result_count);
    for (const ir::Value &value : values) {
      has_gradients_ |= value.grad_of.valid();
      bool claims = value.declared.valid() || value.global_shape.valid();
      *at++ = value.shape.index;
      *at++ = static_cast<uint32_t>(value.requires_grad) << 1 | claims;
      if (claims) {
        *at++ = value.declared.index;
        *at++ = value.global_shape.index;
      }
    }
  }
  bool out = false;
  for (const ir::Operand &operand : operands) {
    switch (operand.form) {
    case ir::Operand::Form::Value:
      add_value(operand.as_value(), operand.mut || out);
      break;
    case ir::Operand::Form::Literal: {
      const ir::AttrValue &literal = program_.literals[operand.index];
      *at++ = kLiteral;
      *at++ = static_cast<uint32_t>(literal.form);
      *at++ = static_cast<uint32_t>(literal.bits);
      *at++ = static_cast<uint32_t>(literal.bits >> 32);
      break;
    }
    case ir::Operand::Form::Name:
      *at++ = kName;
      *at++ = operand.index;
      out = program_.is_out(operand.as_name());
      continue;
    case ir::Operand::Form::List: {
      llvm::ArrayRef<ir::Operand> members = program_.blocks[operand.as_list()];
      auto done = static_cast<size_t>(at - key.data());
      key.resize_for_overwrite(key.size() + 2 * members.size());
      at = key.data() + done;
      *at++ = kList;
      for (const ir::Operand &member : members) {
        if (member.is_value())
          add_value(member.as_value(), operand.mut || out);
        else
          *at++ = kGap;
      }
      *at++ = kEnd;
      break;
    }
    }
    out = false;
  }
  if ((at - key.data()) % 2)
    *at++ = kEnd;
  key.truncate(static_cast<size_t>(at - key.data()));
  return !matters;
}

void KnownInstructions::keep(const ir::Inst &inst, const rules::ResolvedOp &op,
                             const rules::Outcome &outcome) {
  if (!before_)
    return;
  Counts now = counted();
  uint64_t silent = now.silent - before_->silent;
  before_->silent = now.silent;
  before_->words += outcome.inferred.size(); // they are reported again
  bool bound = op.form == rules::OpForm::Unknown || op.boundary == rules::Boundary::Grad ||
               op.boundary == rules::Boundary::Backward || op.boundary == rules::Boundary::Step ||
               op.boundary == rules::Boundary::Store;
  if (bound || *before_ != now)
    return;
  llvm::SmallVector<uint32_t, 4> results;
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    ValueId result = inst.result(i);
    if (undecided_.row(result) != 0)
      return;
    results.push_back(state_.number(result));
  }
  state_.cache.add({.outcome = &outcome,
                    .silent = silent,
                    .transition = op.form == rules::OpForm::Transition,
                    .infers = !outcome.inferred.empty()},
                   results);
}

} // namespace spmd::checker
