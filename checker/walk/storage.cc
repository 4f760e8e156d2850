// Which values share storage, and which of them are stale. One version counter per storage.
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
    if (InstId last = last_use_[name.index]; last.valid() && last.index > id.index)
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
    histories_.push_back({});
    history = static_cast<uint32_t>(histories_.size());
  }
  History &written = histories_[history - 1];
  ++written.writes;
  written.last = by;
}

} // namespace spmd::checker
