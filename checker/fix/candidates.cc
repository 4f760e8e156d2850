// The order in which repairs are tried and offered, and those that are no transition on an operand
// by itself.
#include "checker/fix/candidates.h"

#include "ir/dialect/print_type.h"
#include "ir/mesh/axis_scale.h"
#include "ir/support/product.h"
#include "ir/text/text.h"
#include "rules/boundary/name.h"
#include "rules/transitions/transition.h"
#include "rules/violations/gradients.h"
#include "rules/violations/local.h"
#include "rules/violations/shards.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::ValueId;
using ir::WrittenKind;
using rules::Collective;
using rules::Transition;
using rules::TransitionOp;

bool Candidates::keeps_value(const Transition &row) {
  bool same_ends = row.dst != Kind::Varying && row.dst != Kind::Partial && row.src != Kind::Varying;
  return row.op != TransitionOp::Reinterpret || same_ends;
}

std::string Candidates::axes_text(AxisSet axes) const {
  std::string names = ir::print_axes(program_, mesh_id(), axes);
  return axes.size() > 1 ? "(" + names + ")" : names;
}

int64_t Candidates::rank_count() const {
  int64_t count = 1;
  for (AxisId axis : search_.axes)
    count = ir::saturating_product(count, mesh()[axis].size());
  return count;
}

llvm::SmallVector<Fix, kMaxFixes> Candidates::run() {
  if (search_.finding.violation.info().collectives_only_silence)
    return {};
  // A value among addends of a later sum would still be added once per rank, silently; and where
  // the other operand is gathered, the sum would count that once per rank as well.
  if (search_.finding.violation.is<rules::InvariantMixed>() &&
      reducing_collective_of(program_, search_.id, search_.axes).valid())
    return {};
  // Each is held against all that depends on it, so a wide op has only so many of its operands
  // tried.
  constexpr size_t kMostOperands = 64;
  llvm::SmallVector<uint32_t, 4> operands = search_.operands();
  state_.cut |= operands.size() > kMostOperands;
  operands.resize(std::min(operands.size(), kMostOperands));
  for (uint32_t operand : operands)
    if (operand < search_.tensors.size())
      on_operand(operand);
  redistributed();
  innermost();
  fork_generator();
  rescale();
  attributes();
  if (const auto *wrong = search_.finding.violation.as<rules::GradientTypeMismatch>())
    on_gradient(*wrong);
  if (search_.finding.violation.is<rules::UnreducedGradient>())
    for (uint32_t operand = 0; operand < search_.tensors.size() && operand < kMostOperands;
         ++operand)
      sum_operand(operand);
  llvm::stable_sort(found_, [](const Fix &a, const Fix &b) {
    auto key = [](const Fix &fix) {
      return std::tuple(fix.changes_value, fix.changes_shape,
                        fix.form != Fix::Form::Transition ? 0 : 1,
                        fix.forward_bytes.value_or(0) + fix.backward_bytes.value_or(0));
    };
    return key(a) < key(b);
  });
  if (found_.size() > kMaxFixes)
    found_.resize(kMaxFixes);
  return std::move(found_);
}

// A gradient of another kind than its value asks for goes through one transition more.
void Candidates::on_gradient(const rules::GradientTypeMismatch &wrong) {
  const ir::Inst &inst = search_.inst;
  ValueId made;
  for (uint32_t r = 0; r < inst.result_count && !made.valid(); ++r)
    if (program_.values[inst.result(r)].grad_of == wrong.value)
      made = inst.result(r);
  AxisId axis = wrong.axes.first();
  // Copies: edits make types.
  const ir::Type from = program_.types[wrong.found], to = program_.types[wrong.needed];
  std::optional<Kind> src = from.kind(axis), dst = to.kind(axis);
  if (!made.valid() || !src || !dst || !from.of(*src).contains(wrong.axes) ||
      !to.of(*dst).contains(wrong.axes))
    return;
  auto word = [&](const ir::Type &type, Kind kind) {
    std::optional<unsigned> dim = type.dim(axis);
    return dim ? WrittenKind{.form = WrittenKind::Form::Shard,
                             .kind = kind,
                             .dim = static_cast<int8_t>(*dim)}
               : WrittenKind{.kind = kind};
  };
  for (const Transition &row : rules::transitions())
    if (row.fixes && row.src == *src && row.dst == *dst)
      after(row.op, row.collective, word(from, *src), word(to, *dst), made, !keeps_value(row));
  // What varies may be addends that nobody has called so.
  if (src == Kind::Varying && (dst == Kind::Invariant || dst == Kind::Replicate))
    after(TransitionOp::AllReduce, Collective::AllReduce, std::nullopt, {.kind = *dst}, made, true);
}

void Candidates::after(TransitionOp op, Collective collective, std::optional<WrittenKind> src,
                       WrittenKind dst, ValueId made, bool changes) {
  const std::string_view name = rules::name_of(op);
  Edit edit{.inst = search_.id};
  edit.gradients.push_back(made);
  edit.dual_op = state_.op(op);
  edit.dual_attrs = words(src, dst);
  state_.tried = true;
  if (!search_.repairs(edit))
    return;
  Fix fix;
  fix.form = Fix::Form::Result;
  fix.inst = search_.id;
  fix.changes_value = changes;
  std::string value = ir::print_value(program_, made);
  std::string axes = axes_text(search_.axes);
  std::string from = src ? ir::print(*src) : "", to = ir::print(dst);
  fix.text = fmt::format("{}({}, {}{}, dst={})", name, value, axes, src ? ", src=" + from : "", to);
  fix.replacement = fmt::format("{}.fixed = {} {} {{ axis = {}{}, dst = {} }}", value, name, value,
                                axes, src ? ", src = " + from : "", to);
  if (ir::ShapeId shape = state_.known(made).shape; shape.valid())
    if (std::optional<int64_t> bytes = ir::byte_count(program_.shapes[shape]); bytes && !symbolic())
      fix.forward_bytes = fix.backward_bytes = rules::ring_bytes(collective, *bytes, rank_count());
  found_.push_back(std::move(fix));
}

// Operands that are cut differently are brought together, in whatever steps that takes.
void Candidates::redistributed() {
  const rules::Violation &violation = search_.finding.violation;
  if (!violation.is<rules::SpecMismatch>() && !violation.is<rules::ShardOrderUnknown>() &&
      !violation.is<rules::AxisUsedTwice>())
    return;
  offer(state_.moves.find(search_.id));
}

// Only the innermost axis of a dimension can be worked on: it is made that first.
void Candidates::innermost() {
  if (const auto *wrong = search_.finding.violation.as<rules::NotInnermost>())
    offer(state_.moves.innermost(search_.id, wrong->operand.index, wrong->axes));
}

void Candidates::offer(const std::optional<Move> &move) {
  state_.cut |= state_.moves.cut();
  if (!move)
    return;
  for (const Fix &fix : found_) // one step does the same
    if (fix.steps.size() == 1 && fix.steps[0].value == move->value &&
        fix.steps[0].after == move->to)
      return;
  Edit edit{.inst = search_.id,
            .attrs = move->attrs,
            .mover = state_.op(TransitionOp::Redistribute),
            .operand_attrs = move->redistribute_attrs};
  for (uint32_t operand : move->operands)
    edit.operands.push_back({operand, move->to});
  state_.tried = true;
  if (!search_.repairs(edit))
    return;
  Fix fix;
  fix.inst = search_.id;
  fix.operands.assign(move->operands.begin(), move->operands.end());
  fix.changes_shape = move->to.shape != move->from.shape;
  if (!symbolic()) {
    fix.forward_bytes = static_cast<int64_t>(move->forward_bytes);
    fix.backward_bytes = static_cast<int64_t>(move->backward_bytes);
  }
  fix.steps.push_back(
      {move->value, TransitionOp::Redistribute, move->redistribute_attrs, move->from, move->to});
  std::string name = ir::print_value(program_, move->value);
  const std::string_view word = rules::name_of(TransitionOp::Redistribute);
  fix.text = fmt::format("{}({}, {})", word, name, move->words);
  fix.replacement = fmt::format("{}.fixed = {} {} {{ {} }}", name, word, name, move->attributes);
  found_.push_back(std::move(fix));
}

// Ranks that hold different data draw from states of their own.
void Candidates::fork_generator() {
  const ir::Body &main = program_.main; // in a body the state is typed for each call anew
  if (!search_.finding.violation.is<rules::ShardedRandomRepeats>() ||
      search_.id.index < main.first.index || search_.id.index >= main.last.index)
    return;
  for (uint32_t operand = 0; operand < search_.tensors.size(); ++operand) {
    ValueId state = search_.tensors[operand];
    ir::InstId made = defining_inst(program_, state);
    rules::Boundary op = made.valid() ? rules::boundary_of(program_, program_.insts[made].op)
                                      : rules::Boundary::None;
    if (!rules::is_random_state(op) || kind_of(operand) != Kind::Replicate)
      continue;
    rules::TensorInfo forked = state_.known(state);
    ir::Type type = program_.types[forked.type];
    type.set_kind(search_.axes, Kind::Varying);
    forked.type = program_.types.add(type);
    Edit edit{.inst = search_.id};
    edit.operands.push_back({operand, forked});
    state_.tried = true;
    if (!search_.repairs(edit))
      continue;
    Fix fix;
    fix.inst = search_.id;
    fix.operands.push_back(operand);
    fix.forward_bytes = fix.backward_bytes = 0;
    std::string name = ir::print_value(program_, state);
    std::string axes = axes_text(search_.axes);
    const std::string_view fork = rules::boundary_name(rules::Boundary::Fork);
    fix.text = fmt::format("{}({}, {})", fork, name, axes);
    fix.replacement = fmt::format("{}.fixed = {} {} {{ axis = {} }}", name, fork, name, axes);
    found_.push_back(std::move(fix));
  }
}

// Divides what carries a factor too many by it.
void Candidates::rescale() {
  const auto *wrong = search_.finding.violation.as<rules::ScaleMismatch>();
  if (!wrong || !wrong->what.empty() || wrong->operand.index >= search_.tensors.size())
    return;
  std::optional<ir::Scale> left = ir::parse_scale(wrong->left, program_.strings);
  std::optional<ir::Scale> by = left ? ir::inverse(*left) : std::nullopt;
  ValueId value = search_.tensors[wrong->operand.index];
  ir::Type type = program_.types[state_.known(value).type];
  if (!by || type.mesh() != mesh_id())
    return;
  std::string text = ir::print(*by, program_.strings), name = ir::print_value(program_, value);
  ir::ScaleId factor = program_.scales.add(std::move(*by));
  type.scale = ir::product(program_, type.scale, ir::canonical_scale(program_, factor, mesh_id()));
  Edit edit{.inst = search_.id,
            .attrs = {},
            .mover = state_.op(rules::Boundary::Scale),
            .operand_attrs = state_.with({}, "by", ir::AttrValue::scale(factor))};
  edit.operands.push_back(
      {wrong->operand.index,
       {program_.types.add(type), state_.known(value).shape, state_.known(value).sizes}});
  state_.tried = true;
  if (!search_.repairs(edit))
    return;
  Fix fix;
  fix.inst = search_.id;
  fix.operands = {wrong->operand.index};
  fix.steps.push_back({value, rules::TransitionOp::None, edit.operand_attrs, state_.known(value),
                       edit.operands.front().second});
  const std::string_view scale = rules::boundary_name(rules::Boundary::Scale);
  fix.text = fmt::format("{}({}, by = {})", scale, name, text);
  fix.forward_bytes = fix.backward_bytes = 0;
  fix.replacement = fmt::format("{}.fixed = {} {} {{ by = {} }}", name, scale, name, text);
  found_.push_back(std::move(fix));
}

// The kind of an operand on all axes of the finding; none if they differ.
std::optional<Kind> Candidates::kind_of(uint32_t operand) const {
  const ir::Type &type = program_.types[state_.known(search_.tensors[operand]).type];
  if (type.mesh() != mesh_id() || search_.axes.empty())
    return std::nullopt;
  std::optional<Kind> kind = type.kind(search_.axes.first());
  return kind && type.of(*kind).contains(search_.axes) ? kind : std::nullopt;
}

ir::AttrsId Candidates::words(std::optional<WrittenKind> src, WrittenKind dst) {
  ir::AttrsId attrs = state_.with({}, "axis", state_.axes_value(mesh(), search_.axes));
  if (src)
    attrs = state_.with(attrs, "src", ir::AttrValue::kind(*src));
  return state_.with(attrs, "dst", ir::AttrValue::kind(dst));
}

void Candidates::add_price(Fix &fix, const Transition &row, const rules::TensorInfo &before,
                           const rules::TensorInfo &after) const {
  if (!before.shape.valid() || !after.shape.valid())
    return;
  std::optional<int64_t> a = ir::byte_count(program_.shapes[before.shape]);
  std::optional<int64_t> b = ir::byte_count(program_.shapes[after.shape]);
  if (!a || !b || symbolic())
    return;
  int64_t bytes = std::max(*a, *b), ranks = rank_count();
  fix.forward_bytes =
      fix.forward_bytes.value_or(0) + rules::ring_bytes(row.collective, bytes, ranks);
  const Transition *dual = rules::find_transition(row.dual.op, row.dual.src, row.dual.dst);
  bool gradient = !program_.types[before.type].gradient_free();
  fix.backward_bytes = fix.backward_bytes.value_or(0) +
                       (dual && gradient ? rules::ring_bytes(dual->collective, bytes, ranks) : 0);
}

} // namespace spmd::checker
