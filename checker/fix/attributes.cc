// Other attributes of the instruction, or none of it.
#include "checker/fix/candidates.h"

#include "ir/support/format.h"
#include "ir/text/text.h"
#include "rules/boundary/name.h"
#include "rules/transitions/transition.h"
#include "rules/violations/gradients.h"
#include "rules/violations/local.h"
#include "rules/violations/meshes.h"
#include "rules/violations/shards.h"
#include "rules/violations/transitions.h"

#include <fmt/format.h>

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::ValueId;
using ir::WrittenKind;
using rules::Collective;
using rules::Transition;

bool Candidates::try_attrs(ir::AttrsId attrs, std::string text, bool changes_value) {
  state_.tried = true;
  if (!search_.repairs({.inst = search_.id, .attrs = attrs}))
    return false;
  Fix fix;
  fix.form = Fix::Form::Attribute;
  fix.inst = search_.id;
  fix.attrs = attrs;
  fix.text = std::move(text);
  fix.changes_value = changes_value;
  found_.push_back(std::move(fix));
  return true;
}

void Candidates::attributes() {
  ir::AttrsId attrs = search_.inst.attrs;
  const rules::Violation &violation = search_.finding.violation;
  if (const auto *wrong = violation.as<rules::WrongSource>())
    if (wrong->found.form == WrittenKind::Form::Plain)
      try_attrs(state_.with(attrs, "src", ir::AttrValue::kind(wrong->found)),
                fmt::format("src = {}", ir::print(wrong->found)), true);
  if (violation.is<rules::NeedlessPartial>())
    drop_partial(attrs);
  if (violation.is<rules::UnstatedPartial>())
    state_partial(attrs);
  if (const auto *wrong = violation.as<rules::WrongDimension>())
    name_dimension(attrs, wrong->found);
  if (const auto *wrong = violation.as<rules::WrongAxis>())
    try_attrs(state_.with(attrs, "axis", state_.axes_value(mesh(), wrong->actual)),
              fmt::format("axis = {}", axes_text(wrong->actual)), true);
  if (violation.is<rules::ExpertTransition>())
    try_attrs(state_.with(attrs, "expert", ir::AttrValue::boolean(true)),
              "expert = true, if it is meant", false);
  if (violation.is<rules::MissingVjp>() && program_.find(attrs, "vjp"))
    try_attrs(state_.with(attrs, "vjp", std::nullopt),
              "drop `vjp = none`: call the form that has a backward", false);
  if (const auto *replicated = violation.as<rules::ReduceOfReplicated>())
    drop_inst(replicated->operand.index);
}

AxisSet Candidates::stated_partial(ir::AttrsId attrs) const {
  AxisSet stated;
  if (const ir::AttrValue *partial = program_.find(attrs, "partial");
      partial && partial->form == ir::AttrForm::Axes)
    for (const ir::AxisRef &ref : program_.axis_refs[partial->as<ir::AxisRefsId>()].refs)
      if (std::optional<AxisId> axis = mesh().find(ref.axis))
        stated |= *axis;
  return stated;
}

void Candidates::drop_partial(ir::AttrsId attrs) {
  AxisSet stated = stated_partial(attrs) - search_.axes;
  std::optional<ir::AttrValue> rest;
  if (stated)
    rest = state_.axes_value(mesh(), stated);
  try_attrs(state_.with(attrs, "partial", rest),
            stated ? fmt::format("partial = {}", axes_text(stated)) : "drop `partial`", false);
}

void Candidates::state_partial(ir::AttrsId attrs) {
  AxisSet stated = stated_partial(attrs) | search_.axes;
  ir::AttrsId changed = state_.with(attrs, "partial", state_.axes_value(mesh(), stated));
  std::string text = fmt::format("partial = {}", axes_text(stated));
  if (!try_attrs(changed, text, false))
    state_and_reduce(changed, text);
}

// The sum is stated, and taken at once: some use needs it whole.
void Candidates::state_and_reduce(ir::AttrsId attrs, const std::string &stated) {
  if (search_.inst.result_count != 1)
    return;
  ValueId made = search_.inst.first_result;
  const rules::TensorInfo known = state_.known(made);
  ir::Type type = program_.types[known.type];
  type.unknown -= search_.axes;
  type.set_kind(search_.axes, Kind::Partial);
  const rules::TensorInfo partial{program_.types.add(type), known.shape, known.sizes};
  unsigned rank =
      known.shape.valid() ? static_cast<unsigned>(program_.shapes[known.shape].dims.size()) : 0;
  for (const Transition &row : rules::transitions()) {
    if (!row.fixes || row.src != Kind::Partial || row.collective == Collective::None)
      continue;
    if (row.layouts == rules::Layouts::Plain)
      reduce_result(row, {.kind = row.dst}, attrs, stated, partial);
    else
      for (int8_t dim = 0; dim < static_cast<int8_t>(rank); ++dim)
        if (reduce_result(row,
                          {.form = WrittenKind::Form::Shard, .kind = Kind::Varying, .dim = dim},
                          attrs, stated, partial))
          break;
  }
}

bool Candidates::reduce_result(const Transition &row, WrittenKind dst, ir::AttrsId attrs,
                               const std::string &stated, const rules::TensorInfo &partial) {
  const WrittenKind src{.kind = Kind::Partial};
  ValueId made = search_.inst.first_result;
  std::optional<rules::TensorInfo> after = search_.walk.transition(
      state_.op(row.name()), words(src, dst), search_.inst.context, partial);
  if (!after)
    return false;
  Edit edit{.inst = search_.id, .attrs = attrs};
  edit.gradients.push_back(made);
  edit.dual_op = state_.op(row.name());
  edit.dual_attrs = words(src, dst);
  if (!search_.repairs(edit))
    return false;
  Fix fix;
  fix.form = Fix::Form::Attribute;
  fix.inst = search_.id;
  fix.changes_shape = after->shape != partial.shape;
  add_price(fix, row, partial, *after);
  std::string name = ir::print_value(program_, made);
  std::string axes = axes_text(search_.axes);
  fix.text = fmt::format("{}, then {}({}, {}, src=P, dst={})", stated, row.name(), name, axes,
                         ir::print(dst));
  fix.replacement = fmt::format("{}.fixed = {} {} {{ axis = {}, src = P, dst = {} }}", name,
                                row.name(), name, axes, ir::print(dst));
  found_.push_back(std::move(fix));
  return true;
}

void Candidates::name_dimension(ir::AttrsId attrs, int64_t dim) {
  WrittenKind shard{
      .form = WrittenKind::Form::Shard, .kind = Kind::Varying, .dim = static_cast<int8_t>(dim)};
  try_attrs(state_.with(attrs, "src", ir::AttrValue::kind(shard)),
            fmt::format("src = {}", ir::print(shard)), true);
}

// A coalesced call goes on without the operand.
void Candidates::drop_inst(uint32_t operand) {
  const ir::Inst &inst = search_.inst;
  bool alone = inst.result_count == 1;
  if (operand >= search_.tensors.size() || operand >= inst.result_count)
    return;
  state_.tried = true;
  if (!search_.repairs({.inst = search_.id, .drop = true, .member = operand}))
    return;
  Fix fix;
  fix.form = Fix::Form::Drop;
  fix.inst = search_.id;
  const auto *copies = search_.finding.violation.as<rules::ReduceOfReplicated>();
  fix.changes_value = !copies || copies->factor.count != 1;
  fix.forward_bytes = fix.backward_bytes = 0;
  std::string_view name = program_.op_name(inst.op);
  fix.text = alone ? fmt::format("drop `{}`", name)
                   : fmt::format("leave {} out of `{}`",
                                 ir::print_value(program_, search_.tensors[operand]), name);
  found_.push_back(std::move(fix));
}

} // namespace spmd::checker
