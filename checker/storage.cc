// Which values share storage, and which of them are stale. One version counter per storage.
#include "checker/walk.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::InstId;
using ir::ValueId;

Storage::Storage(const ir::Program &program)
    : program_(program), roots_(program.values.size()), written_(program.values.size()),
      made_(program.values.size(), 0), next_name_(program.values.size()),
      last_use_(program.values.size()) {
  for (uint32_t i = 0; i < program.insts.size(); ++i)
    use(program.insts[InstId{i}].operands, InstId{i});
}

void Storage::use(ir::BlockId block, InstId by) {
  for (const ir::Operand &operand : program_.blocks[block]) {
    if (operand.is_value())
      last_use_[operand.index] = by;
    else if (operand.form == ir::Operand::Form::List)
      use(operand.as_list(), by);
  }
}

bool Storage::shared_after(ValueId value, InstId id) const {
  for (ValueId name = roots_[value.index]; name.valid(); name = next_name_[name.index])
    if (InstId last = last_use_[name.index]; name != value && last.valid() && last.index > id.index)
      return true;
  return false;
}

void Storage::define(ValueId value) {
  ValueId base = program_.values[value].alias_of;
  ValueId root = base.valid() ? roots_[base.index] : value;
  roots_[value.index] = root.valid() ? root : value;
  if (root.valid() && root != value) {
    next_name_[value.index] = next_name_[root.index];
    next_name_[root.index] = value;
  }
  uint32_t storage = roots_[value.index].index;
  made_[value.index] = written_[storage] ? versions_.find(storage)->second.first : 0;
}

void Storage::write(ValueId target, InstId by) {
  ValueId root = roots_[target.index];
  if (!root.valid())
    return;
  written_[root.index] = true;
  auto &[version, writer] = versions_[root.index];
  ++version;
  writer = by;
}

InstId Storage::writer_after(ValueId value) const {
  const auto &[version, writer] = versions_.find(roots_[value.index].index)->second;
  return version == made_[value.index] ? InstId() : writer;
}

void OperandList::add(const ir::Program &program, const ir::Operand &operand, ir::StringId name) {
  rules::Slot slot;
  slot.name = name;
  slot.first = static_cast<uint16_t>(values.size());
  switch (operand.form) {
  case ir::Operand::Form::Value:
    slot.form = rules::Slot::Form::Tensor;
    slot.count = 1;
    values.push_back(operand.as_value());
    written.push_back(operand.mut);
    break;
  case ir::Operand::Form::Literal:
    slot.literal = program.literals[operand.index];
    if (slot.literal.form != ir::AttrForm::Null)
      slot.form = rules::Slot::Form::Literal;
    break;
  case ir::Operand::Form::List: {
    slot.form = rules::Slot::Form::List;
    uint64_t tensors = 0;
    unsigned position = 0;
    for (const ir::Operand &member : program.blocks[operand.as_list()]) {
      if (member.is_value()) {
        values.push_back(member.as_value());
        written.push_back(operand.mut || member.mut);
        ++slot.count;
        tensors |= position < 63 ? uint64_t(1) << position : 0;
      }
      ++position;
    }
    slot.literal = ir::AttrValue::integer(static_cast<int64_t>(tensors));
    break;
  }
  case ir::Operand::Form::Name:
    return;
  }
  slots.push_back(slot);
}

void OperandList::read(const ir::Program &program, ir::BlockId block) {
  slots.clear();
  values.clear();
  written.clear();
  ir::StringId name;
  for (const ir::Operand &operand : program.blocks[block]) {
    if (operand.form == ir::Operand::Form::Name) {
      name = operand.as_name();
      continue;
    }
    add(program, operand, name);
    name = {};
  }
}

} // namespace spmd::checker
