// Stacks of which each entry has blocks of its own: made of zeros, written by entry, and sent.
#include "checker/gradual/sent/rings.h"

#include "checker/program_queries.h"

#include "rules/ops/op.h"
#include "rules/shapes/attrs.h"
#include "rules/violations/operands.h"

namespace spmd::checker {

using ir::AxisId;
using ir::ValueId;

constexpr int64_t kMostMembers = 8;

std::optional<Rings::Members> Rings::members_of(ValueId value, const ir::Type &type, AxisId axis,
                                                unsigned dim) const {
  if (const auto known = members_.find(value.index); known != members_.end())
    return known->second.dim == dim && known->second.of[0].axis == axis
               ? std::optional(known->second)
               : std::nullopt;
  const auto filled = uniform_.find(value.index);
  const std::optional<int64_t> count = extent(value, dim);
  const bool zero = type.zero().contains(axis) || (filled != uniform_.end() && filled->second);
  if (!zero || !count || *count < 2 || *count > kMostMembers)
    return std::nullopt;
  RingValue nothing;
  nothing.axis = axis;
  nothing.uniform = true;
  return Members{dim, std::vector<RingValue>(static_cast<size_t>(*count), nothing)};
}

// What one rank has of each entry, the next one gets.
void Rings::send_members(Step &step, unsigned by) {
  const auto known = members_.find(step.operands[0].index);
  if (known == members_.end() || known->second.of[0].axis != step.axis)
    return;
  Members sent = known->second;
  for (RingValue &each : sent.of)
    each.turn(by, step.ranks, step.id);
  members_[step.result(0).index] = std::move(sent);
}

// The view of one entry of what is known entry by entry.
bool Rings::pick_member(Step &step) {
  const auto known =
      step.operands.size() == 1 ? members_.find(step.operands[0].index) : members_.end();
  const auto entry = known != members_.end() ? entry_of(step.app, step.operands[0]) : std::nullopt;
  if (!entry || entry->dim != known->second.dim ||
      entry->index >= static_cast<int64_t>(known->second.of.size()))
    return false;
  RingValue member = known->second.of[static_cast<size_t>(entry->index)];
  step.axis = step.facts.axis = member.axis;
  step.ranks = static_cast<unsigned>(step.app.mesh()[step.axis].size());
  finish(step, 0, std::move(member));
  return true;
}

// An older view of a stack of which an entry was written.
void Rings::write_member(Step &step) {
  if (step.operands.size() != 2)
    return;
  const RingValue *written = find(step.operands[0]);
  if (!written)
    return;
  constexpr int kMostViews = 8;
  ValueId view = step.operands[0];
  for (int i = 0; i < kMostViews && view.valid() && !entries_.count(view.index); ++i)
    view = program_.values[view].alias_of;
  const auto entry = view.valid() ? entries_.find(view.index) : entries_.end();
  if (entry == entries_.end() || entry->second.of != step.operands[1])
    return;
  auto members = members_of(step.operands[1], step.app.type(step.app.args[1]), written->axis,
                            entry->second.dim);
  if (!members || entry->second.index >= static_cast<int64_t>(members->of.size()))
    return;
  members->of[static_cast<size_t>(entry->second.index)] = *written;
  members_[step.result(0).index] = std::move(*members);
}

std::optional<Rings::Entry> Rings::entry_of(const rules::Application &app, ValueId stack) const {
  const auto dims = rules::placed_dims(app, rules::DefaultDim::First, rank(stack));
  const auto index = rules::number_attr(app, {"index"});
  const auto count =
      dims && dims->size() == 1 ? extent(stack, dims->front()) : std::optional<int64_t>();
  if (app.op.variant() != rules::Variant::OneEntry || !index || !count || *index >= *count ||
      *index < -*count)
    return std::nullopt;
  return Entry{stack, dims->front(), *index < 0 ? *index + *count : *index};
}

void Rings::learn_entry(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                        ValueId result) {
  if (const auto entry = operands.size() == 1 ? entry_of(app, operands[0]) : std::nullopt)
    entries_[result.index] = *entry;
}

} // namespace spmd::checker
