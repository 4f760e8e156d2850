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
    for (const ir::Operand &operand : program_.operand_lists[insts[i].operands]) {
      note(operand);
      if (operand.form == ir::Operand::Form::List)
        llvm::for_each(program_.operand_lists[operand.as_list()], note);
    }
  }
}

// Names and writes of one storage that are looked through one by one.
static constexpr size_t kFew = 32;

llvm::SmallVector<ValueId, 2> Storage::other_names_after(ValueId value, InstId id) {
  llvm::SmallVector<ValueId, 2> names;
  for (ValueId name = names_[value.index].root; name.valid(); name = names_[name.index].next) {
    names.push_back(name);
    if (names.size() <= kFew)
      continue;
    names = names_near(value);
    break;
  }
  llvm::erase_if(names, [&](ValueId name) {
    if (name == value)
      return true;
    if (last_use_.empty())
      find_last_uses();
    const InstId last = last_use_[name.index];
    return !last.valid() || last.index <= id.index || regions_.disjoint(value, name);
  });
  return names;
}

Storage::Places &Storage::places(ValueId root) {
  auto found = places_.find(root.index);
  if (found == places_.end()) {
    const RegionIndex empty = regions_.index(root);
    found = places_.try_emplace(root.index, Places{empty, empty, {}, 0}).first;
  }
  return found->second;
}

// The entries of all lists from one on, each once. Lists grow, unless all of them are wanted.
static llvm::SmallVector<uint32_t, 16> merged(llvm::ArrayRef<llvm::ArrayRef<uint32_t>> lists,
                                              uint32_t from) {
  llvm::SmallVector<uint32_t, 16> entries;
  for (llvm::ArrayRef<uint32_t> list : lists)
    entries.append(llvm::lower_bound(list, from), list.end());
  llvm::sort(entries);
  entries.erase(std::unique(entries.begin(), entries.end()), entries.end());
  return entries;
}

// The names of its storage that may show an element of it.
llvm::SmallVector<ValueId, 2> Storage::names_near(ValueId value) {
  const ValueId root = names_[value.index].root;
  Places &known = places(root);
  // New names stand right behind the first one.
  const ValueId end = known.newest;
  if (!end.valid())
    known.names.add(root.index, region(root));
  for (ValueId name = names_[root.index].next; name.valid() && name != end;
       name = names_[name.index].next)
    known.names.add(name.index, region(name));
  known.newest = names_[root.index].next;
  llvm::SmallVector<ValueId, 2> names;
  for (uint32_t name : merged(known.names.near(region(value)), 0))
    names.push_back(ValueId{name});
  return names;
}

// Lists of writes, by index, which have all that may reach a name between them.
llvm::SmallVector<llvm::ArrayRef<uint32_t>, 8> Storage::writes_near(ValueId value) {
  const llvm::ArrayRef<Write> all = writes(value);
  Places &known = places(names_[value.index].root);
  for (; known.written < all.size(); ++known.written)
    known.writes.add(known.written, region(all[known.written].target));
  return known.writes.near(region(value));
}

// A name of a storage that may have others, or that a body makes again.
void Storage::define_name(ValueId value, ValueId base) {
  ValueId root = base.valid() ? names_[base.index].root : value;
  if (!root.valid())
    root = value;
  if (root != value)
    join(value, root);
  Name &own = names_[value.index];
  const uint32_t history = names_[root.index].history;
  if (own.root.valid() && !places_.empty()) // made again, and elsewhere
    places_.erase(root.index);
  own.root = root;
  own.made = own.seen = history ? static_cast<uint32_t>(histories_[history - 1].size()) : 0;
  regions_.forget(value);
  if (!before_.empty())
    before_.erase(value.index);
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
  return history ? llvm::ArrayRef<Write>(histories_[history - 1]) : llvm::ArrayRef<Write>();
}

llvm::ArrayRef<Storage::Write> Storage::writes_before(ValueId value) const {
  return writes(value).take_front(names_[value.index].made);
}

llvm::SmallVector<Storage::Write, 4> Storage::writes_after(ValueId value, InstId until) {
  const llvm::ArrayRef<Write> all = writes(value);
  const uint32_t made = names_[value.index].made, count = static_cast<uint32_t>(all.size());
  llvm::SmallVector<uint32_t, 16> reaching;
  if (count - made <= kFew) {
    for (uint32_t i = made; i < count; ++i)
      reaching.push_back(i);
  } else {
    reaching = merged(writes_near(value), made);
  }
  llvm::SmallVector<Write, 4> found;
  for (uint32_t i : reaching)
    if (all[i].by.index < until.index && !regions_.disjoint(all[i].target, value))
      found.push_back(all[i]);
  return found;
}

InstId Storage::last_write(ValueId value) {
  Name &own = names_[value.index];
  const llvm::ArrayRef<Write> all = writes(value);
  const uint32_t count = static_cast<uint32_t>(all.size());
  std::optional<uint32_t> last;
  // From the newest one of a list on; older than what another list has, it is not asked for.
  const auto look = [&](uint32_t i) {
    if (i < own.seen || (last && i <= *last))
      return false;
    if (!regions_.disjoint(all[i].target, value))
      last = i;
    return true;
  };
  if (count - own.seen <= kFew) {
    for (uint32_t i = count; i-- > 0 && look(i);)
      ;
  } else {
    for (llvm::ArrayRef<uint32_t> list : writes_near(value))
      for (size_t at = list.size(); at-- > 0 && look(list[at]);)
        ;
  }
  if (last)
    return all[*last].by;
  own.seen = count;
  return {};
}

} // namespace spmd::checker
