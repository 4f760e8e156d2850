// Which rows of the table an application uses, and with which operands: lists are taken apart, or
// made.
#include "rules/apply.h"
#include "rules/derivative.h"
#include "rules/ops/registry.h"

namespace spmd::rules {

namespace {

// The members that the lists of a zipped application have; 1 where there is no list.
unsigned member_count(const Application &app) {
  for (const Slot &slot : app.slots)
    if (slot.form == Slot::Form::List)
      return slot.count;
  return 1;
}

Slot member(const Slot &slot, unsigned i) {
  if (slot.form != Slot::Form::List || i >= slot.count)
    return slot;
  Slot one = slot;
  one.form = Slot::Form::Tensor;
  one.first = static_cast<uint32_t>(slot.first + i);
  one.count = 1;
  return one;
}

const OpDef &chosen_row(const Application &app) {
  const OpDef &row = *app.op.row;
  ChooseRule choose = app.op.alias && app.op.alias->choose ? app.op.alias->choose : row.choose;
  if (!choose)
    return row;
  std::string_view name = choose(app);
  const OpDef *other = name.empty() ? nullptr : find_op(llvm::StringRef(name.data(), name.size()));
  return other ? *other : row;
}

// The positional tensors from the last place of the spelling's order on, as one list. Numbers among
// them (the start of a slice) say nothing about kinds and are left out.
llvm::SmallVector<Slot, 6> with_list(const Application &app) {
  size_t first = app.op.order.size() - 1, position = 0;
  llvm::SmallVector<Slot, 6> slots, rest;
  for (const Slot &slot : app.slots)
    (slot.name.valid() || position++ < first ? slots : rest).push_back(slot);
  if (rest.empty())
    return slots;
  Slot list = rest.front();
  if (rest.size() > 1 || list.form == Slot::Form::Tensor) {
    list = {.form = Slot::Form::List};
    uint64_t present = 0;
    for (size_t i = 0; i < rest.size(); ++i)
      if (rest[i].count) { // tensors, and lists of them
        list.first = list.count ? list.first : rest[i].first;
        list.count = static_cast<uint32_t>(list.count + rest[i].count);
        present |= i < 64 ? uint64_t(1) << i : 0;
      }
    list.literal = ir::AttrValue::integer(static_cast<int64_t>(present));
  }
  slots.insert(slots.begin() + static_cast<ptrdiff_t>(first), list);
  return slots;
}

} // namespace

Application Application::bound_to(const RowUse &use) const {
  return {program, use.op, attrs, context, use.slots, args, results, infer_partial};
}

llvm::SmallVector<RowUse, 1> row_uses(const Application &app) {
  llvm::SmallVector<RowUse, 1> uses;
  if (app.op.forward) {
    if (std::optional<RowUse> use = derivative_use(app))
      uses.push_back(std::move(*use));
    return uses;
  }
  if (app.op.lists_rest) {
    ResolvedOp op = app.op;
    op.lists_rest = false;
    llvm::SmallVector<Slot, 6> slots = with_list(app);
    return row_uses({app.program, op, app.attrs, app.context, slots, app.args, app.results});
  }
  const OpDef &row = chosen_row(app);
  unsigned count = static_cast<unsigned>(app.results.size());
  if (!row.each && !app.op.each) {
    uses.push_back({app.op, &row, {app.slots.begin(), app.slots.end()}, {}});
    for (unsigned r = 0; r < count; ++r)
      uses.back().results.push_back(r);
    return uses;
  }
  // Results of zipped rows come member by member where the row has one result, else list after
  // list.
  unsigned members = member_count(app), per_member = members ? count / members : 0;
  uses.reserve(per_member ? members : 0);
  for (unsigned i = 0; i < members && per_member; ++i) {
    uses.push_back({app.op, &row, {}, {}});
    for (const Slot &slot : app.slots)
      uses.back().slots.push_back(member(slot, i));
    for (unsigned r = 0; r < per_member; ++r)
      uses.back().results.push_back(r * members + i);
  }
  return uses;
}

} // namespace spmd::rules
