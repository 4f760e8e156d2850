// Which values share storage, and which of them are stale. One version counter per storage.
#include "checker/walk.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::InstId;
using ir::ValueId;

Storage::Storage(const ir::Program &program)
    : program_(program), roots_(program.values.size()), made_(program.values.size(), 0),
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
  auto at = names_.find(roots_[value.index].index);
  auto used = [&](ValueId name) {
    return name != value && last_use_[name.index].valid() && last_use_[name.index].index > id.index;
  };
  if (used(roots_[value.index]))
    return true;
  return at != names_.end() && llvm::any_of(at->second, used);
}

void Storage::define(ValueId value) {
  ValueId base = program_.values[value].alias_of;
  ValueId root = base.valid() ? roots_[base.index] : value;
  roots_[value.index] = root.valid() ? root : value;
  if (root.valid() && root != value)
    names_[root.index].push_back(value);
  auto at = versions_.find(roots_[value.index].index);
  made_[value.index] = at == versions_.end() ? 0 : at->second.first;
}

void Storage::write(ValueId target, InstId by) {
  ValueId root = roots_[target.index];
  if (!root.valid())
    return;
  auto &[version, writer] = versions_[root.index];
  ++version;
  writer = by;
}

InstId Storage::overtaken_by(ValueId value) const {
  ValueId root = roots_[value.index];
  if (!root.valid())
    return {};
  auto at = versions_.find(root.index);
  if (at == versions_.end() || at->second.first == made_[value.index])
    return {};
  return at->second.second;
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
