// Reads the operands of an instruction: values, lists of values, numbers and names.
#include "checker/operand_list.h"

namespace spmd::checker {

void OperandList::add(const ir::Program &program, const ir::Operand &operand, ir::StringId name) {
  rules::Slot slot;
  slot.name = name;
  slot.first = static_cast<uint32_t>(values.size());
  note_write(operand.mut);
  switch (operand.form) {
  case ir::Operand::Form::Literal:
    slot.literal = program.literals[operand.index];
    slot.form = form_of(slot.literal);
    break;
  case ir::Operand::Form::List: {
    slot.form = rules::Slot::Form::List;
    uint64_t tensors = 0;
    unsigned position = 0;
    for (const ir::Operand &member : program.operand_lists[operand.as_list()]) {
      if (member.is_value()) {
        values.push_back(member.as_value());
        written.push_back(operand.mut);
        ++slot.count;
        tensors |= position < 63 ? uint64_t(1) << position : 0;
      }
      ++position;
    }
    slot.literal = ir::AttrValue::integer(static_cast<int64_t>(tensors));
    break;
  }
  case ir::Operand::Form::Value: // read() takes these
  case ir::Operand::Form::Name:
    return;
  }
  slots.push_back(slot);
}

void OperandList::read(const ir::Program &program, ir::OperandsId block) {
  slots.clear();
  values.clear();
  written.clear();
  writes = Writes::None;
  ir::StringId name;
  for (const ir::Operand &operand : program.operand_lists[block]) {
    if (operand.is_value()) {         // as most are
      slots.resize(slots.size() + 1); // in place: a copy would wait for its own stores
      rules::Slot &slot = slots.back();
      slot.form = rules::Slot::Form::Tensor;
      slot.first = static_cast<uint32_t>(values.size());
      slot.count = 1;
      slot.name = name;
      note_write(operand.mut);
      values.push_back(operand.as_value());
      written.push_back(operand.mut);
      name = {};
      continue;
    }
    if (operand.form == ir::Operand::Form::Name) {
      name = operand.as_name();
      continue;
    }
    add(program, operand, name);
    name = {};
  }
}

void OperandList::operands_of_result(uint32_t result, uint32_t results,
                                     llvm::SmallVectorImpl<ir::ValueId> &found) const {
  found.clear();
  for (const rules::Slot &slot : slots) {
    const bool tensors =
        slot.form == rules::Slot::Form::Tensor || slot.form == rules::Slot::Form::List;
    const bool each = slot.form == rules::Slot::Form::List && results > 1 && slot.count == results;
    if (each)
      found.push_back(values[slot.first + result]);
    else if (tensors)
      found.append(values.begin() + slot.first, values.begin() + slot.first + slot.count);
  }
}

} // namespace spmd::checker
