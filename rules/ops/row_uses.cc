// Which rows of the table an application uses, and with which operands: lists are taken apart, or
// made; of a derivative the forward application tells which row is meant.
#include "rules/bind.h"
#include "rules/derivative.h"
#include "rules/ops/table.h"
#include "rules/shapes/attrs.h"
#include "rules/factors/shape_rule.h"
#include "rules/violations/operands.h"

#include <fmt/format.h>

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

// Gradients as the instruction has them, one per result of the forward instruction: tensors, or
// nothing.
llvm::SmallVector<Slot, 4> gradients_of(const Application &app) {
  llvm::SmallVector<Slot, 4> gradients;
  if (app.slots.empty())
    return gradients;
  const Slot &given = app.slots.front();
  if (given.form != Slot::Form::List) {
    gradients.push_back(given);
    return gradients;
  }
  auto present = given.literal.form == ir::AttrForm::Integer
                     ? static_cast<uint64_t>(given.literal.as_integer())
                     : (uint64_t(1) << given.count) - 1;
  uint32_t next = given.first;
  for (unsigned i = 0; i < 64 && present >> i; ++i) {
    Slot one;
    if (present >> i & 1)
      one = {.form = Slot::Form::Tensor, .first = next++, .count = 1};
    gradients.push_back(one);
  }
  return gradients;
}

llvm::SmallVector<ResultClaim, 4> claims_of(const Application &app,
                                            llvm::ArrayRef<Slot> gradients) {
  llvm::SmallVector<ResultClaim, 4> claims;
  for (const Slot &slot : gradients) {
    claims.emplace_back();
    if (slot.count)
      claims.back().shape = app.args[slot.first].shape;
  }
  return claims;
}

// The operand of a derived row per position: gradients, then the operands of the row that it is of.
llvm::SmallVector<uint8_t, 6> order_of(const OpDef &derived) {
  const Equation &own = derived.equation.equation,
                 &forward = derived.derivative_of->equation.equation;
  llvm::SmallVector<uint8_t, 6> order;
  auto place = [&](std::string_view name) {
    unsigned operand = own.find_operand(name);
    order.push_back(operand < own.operand_count ? static_cast<uint8_t>(operand)
                                                : ResolvedOp::kIgnored);
  };
  unsigned gradients = gradient_count(*derived.derivative_of);
  for (unsigned r = 0; r < gradients; ++r)
    place(gradients > 1 ? fmt::format("dr{}", r) : "dr");
  if (takes_rest(derived)) {
    place("before");
    place("after");
  }
  for (unsigned i = 0; i < forward.operand_count; ++i)
    place(forward.operands[i].name);
  return order;
}

// Members [first, last) of a list.
Slot part_of(const Slot &list, unsigned first, unsigned last) {
  Slot part;
  if (first >= last)
    return part;
  part.form = Slot::Form::List;
  part.first = static_cast<uint32_t>(list.first + first);
  part.count = static_cast<uint32_t>(last - first);
  return part;
}

// What `vjp.OP.OPERAND` means for these operands; none if it means nothing.
std::optional<RowUse> derivative_use(const Application &app) {
  llvm::SmallVector<Slot, 4> gradients = gradients_of(app);
  if (gradients.empty())
    return std::nullopt;
  llvm::SmallVector<ResultClaim, 4> claims = claims_of(app, gradients);
  Application forward{app.program, *app.op.forward, app.attrs, app.context, app.slots.drop_front(),
                      app.args,    claims};
  llvm::SmallVector<RowUse, 1> uses = row_uses(forward);
  // Of a zipped op the member tells which of its rows is meant.
  auto member = static_cast<uint64_t>(number_attr(app, {"member"}).value_or(0));
  size_t at = uses.size() > 1 ? std::min<uint64_t>(member, uses.size() - 1) : 0;
  if (uses.empty())
    return std::nullopt;
  RowUse &use = uses[at];
  const Equation &equation = use.row->equation.equation;
  unsigned operand = equation.find_operand(app.op.differentiated);
  Application bound = forward.bound_to(use);
  OperandMismatch ignored;
  std::optional<Binding> binding = bind_operands(bound, equation, ignored);
  if (!binding)
    return std::nullopt;
  bool list = equation.result_count == 1 && equation.results[0].list;
  llvm::SmallVector<Slot, 4> given(equation.result_count);
  uint32_t flowing = list ? 1 : 0;
  for (unsigned k = 0; k < use.results.size() && !list; ++k) {
    unsigned r = row_result(bound, k);
    if (r >= given.size() || use.results[k] >= gradients.size() ||
        gradients[use.results[k]].form == Slot::Form::Missing)
      continue;
    given[r] = gradients[use.results[k]];
    flowing |= 1u << r;
  }
  const OpDef *row =
      operand < equation.operand_count ? derivative(*use.row, operand, flowing) : nullptr;
  if (!row)
    return std::nullopt;
  RowUse made{use.op, row, {}, {}};
  if (!app.results.empty())
    made.results.push_back(0);
  made.op.spelling = app.op.spelling;
  made.op.row = row;
  made.op.order = order_of(*row);
  made.op.in_place = false;
  made.op.forward = std::make_shared<const ResolvedOp>(use.op);
  if (list)
    made.slots.push_back(app.slots.front());
  else
    made.slots.append(given.begin(), given.end());
  if (takes_rest(*row) && (*binding)[operand]) {
    const Slot &all = *(*binding)[operand];
    auto at = static_cast<uint32_t>(std::min<uint64_t>(member, all.count ? all.count - 1u : 0u));
    made.slots.push_back(part_of(all, 0, at));
    made.slots.push_back(part_of(all, at + 1, all.count));
  }
  for (unsigned i = 0; i < equation.operand_count; ++i) {
    made.slots.push_back(binding->missing(i) ? Slot() : *(*binding)[i]);
    made.slots.back().name = {};
  }
  if (binding->generator) {
    made.slots.push_back(*binding->generator);
    made.slots.back().name = app.program.strings.add("rng");
  }
  return made;
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
