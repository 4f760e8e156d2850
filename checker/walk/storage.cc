// Which values share storage, and which of them are stale. One list of writes per storage.
#include "checker/walk/storage.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::InstId;
using ir::ValueId;

void Storage::find_last_uses() {
  last_use_.resize(names_.size());
  llvm::ArrayRef<ir::Inst> insts = program_.insts.all();
  for (uint32_t i = 0; i < insts.size(); ++i) {
    auto note = [&](const ir::Operand &operand) {
      if (operand.is_value())
        last_use_[operand.index] = InstId{i};
    };
    for (const ir::Operand &operand : program_.blocks[insts[i].operands]) {
      note(operand);
      if (operand.form == ir::Operand::Form::List)
        llvm::for_each(program_.blocks[operand.as_list()], note);
    }
  }
}

llvm::SmallVector<ValueId, 2> Storage::others_after(ValueId value, InstId id) {
  llvm::SmallVector<ValueId, 2> others;
  for (ValueId name = names_[value.index].root; name.valid(); name = names_[name.index].next) {
    if (name == value)
      continue;
    if (last_use_.empty())
      find_last_uses();
    if (InstId last = last_use_[name.index];
        last.valid() && last.index > id.index && !regions_.disjoint(value, name))
      others.push_back(name);
  }
  return others;
}

// One more name of the storage.
void Storage::join(ValueId value, ValueId root) {
  Name &own = names_[value.index];
  if (own.root != root) // a body may be typed again
    own.next = std::exchange(names_[root.index].next, value);
}

void Storage::write(ValueId target, InstId by) {
  ValueId root = names_[target.index].root;
  if (!root.valid())
    return;
  uint32_t &history = names_[root.index].history;
  if (!history) {
    histories_.emplace_back();
    history = static_cast<uint32_t>(histories_.size());
  }
  histories_[history - 1].push_back({target, by});
}

llvm::ArrayRef<Storage::Write> Storage::writes(ValueId value) const {
  const ValueId root = names_[value.index].root;
  const uint32_t history = root.valid() ? names_[root.index].history : 0;
  return history ? llvm::ArrayRef(histories_[history - 1]) : llvm::ArrayRef<Write>();
}

llvm::ArrayRef<Storage::Write> Storage::writes_before(ValueId value) const {
  return writes(value).take_front(names_[value.index].made);
}

llvm::ArrayRef<Storage::Write> Storage::writes_after(ValueId value, InstId until) const {
  return writes(value).drop_front(names_[value.index].made).take_while([&](const Write &write) {
    return write.by.index < until.index;
  });
}

InstId Storage::last_write(ValueId value) {
  Name &own = names_[value.index];
  const llvm::ArrayRef<Write> all = writes(value);
  for (size_t i = all.size(); i-- > own.seen;)
    if (!regions_.disjoint(all[i].target, value))
      return all[i].by;
  own.seen = static_cast<uint32_t>(all.size());
  return {};
}

} // namespace spmd::checker
