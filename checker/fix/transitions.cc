// Transitions on operands, from their table: each kind and layout that the finding leaves open.
#include "checker/fix/candidates.h"

#include "ir/support/arrays.h"
#include "ir/text/text.h"
#include "rules/transitions/transition.h"
#include "rules/violations/local.h"
#include "rules/violations/shards.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {

using ir::AxisId;
using ir::Kind;
using ir::ValueId;
using ir::WrittenKind;
using rules::Transition;
using rules::TransitionOp;

// Addends that nobody has called so, on their way into the optimizer.
void Candidates::sum_operand(uint32_t operand) {
  ValueId value = search_.tensors[operand];
  if (kind_of(operand) != Kind::Varying ||
      llvm::is_contained(ir::as_array(search_.tensors).take_front(operand), value))
    return;
  const Transition &row =
      *rules::find_transition(TransitionOp::AllReduce, Kind::Partial, Kind::Replicate);
  WrittenKind dst{.kind = row.dst};
  rules::TensorInfo before = state_.known(value);
  ir::AttrsId attrs = words(std::nullopt, dst);
  std::optional<rules::TensorInfo> after =
      search_.walk.transition(state_.op(row.op), attrs, search_.inst.context, before);
  if (!after)
    return;
  Edit edit{.inst = search_.id, .mover = state_.op(row.op), .operand_attrs = attrs};
  for (uint32_t each = 0; each < search_.tensors.size(); ++each)
    if (search_.tensors[each] == value)
      edit.operands.push_back({each, *after});
  state_.tried = true;
  if (!search_.repairs(edit))
    return;
  Fix fix;
  fix.inst = search_.id;
  fix.operands.push_back(operand);
  fix.changes_value = true;
  fix.steps.push_back({value, row.op, attrs, before, *after});
  add_price(fix, row, before, *after);
  std::string name = ir::print_value(program_, value);
  std::string axes = axes_text(search_.axes);
  std::string word = ir::print(dst);
  fix.text = fmt::format("{}({}, {}, dst={})", row.name(), name, axes, word);
  fix.replacement =
      fmt::format("{}.fixed = {} {} {{ axis = {}, dst = {} }}", name, row.name(), name, axes, word);
  found_.push_back(std::move(fix));
}

void Candidates::on_operand(uint32_t operand) {
  std::optional<Kind> kind = kind_of(operand);
  if (!kind)
    return;
  llvm::SmallVector<uint32_t, 1> operands{operand};
  if (*kind == Kind::Invariant && search_.finding.violation.is<rules::InvariantMixed>())
    operands = all_invariant();
  for (const Transition &row : rules::transitions())
    if (row.fixes && row.src == *kind)
      with_layouts(row, operands);
}

llvm::SmallVector<uint32_t, 1> Candidates::all_invariant() const {
  llvm::SmallVector<uint32_t, 1> found;
  for (uint32_t i = 0; i < search_.tensors.size(); ++i) {
    bool free = program_.types[state_.known(search_.tensors[i]).type].gradient_free();
    if (!free && kind_of(i) == Kind::Invariant)
      found.push_back(i);
  }
  return found;
}

// V stands for a stack or for shards along a dimension; the first form that repairs is enough.
void Candidates::with_layouts(const Transition &row, llvm::ArrayRef<uint32_t> operands) {
  WrittenKind src{.kind = row.src}, dst{.kind = row.dst};
  if (row.layouts == rules::Layouts::Plain)
    return void(try_row(row, operands, src, dst));
  ValueId value = search_.tensors[operands.front()];
  ir::ShapeId shape_id = state_.known(value).shape;
  unsigned rank =
      shape_id.valid() ? static_cast<unsigned>(program_.shapes[shape_id].dims.size()) : 0;
  for (unsigned dim : dims_to_try(rank)) {
    WrittenKind shard{
        .form = WrittenKind::Form::Shard, .kind = Kind::Varying, .dim = static_cast<int8_t>(dim)};
    WrittenKind &end = row.src == Kind::Varying ? src : dst;
    if (!sharded_here(row, value, dim))
      continue;
    end = shard;
    if (try_row(row, operands, src, dst) || with_sizes(row, operands, src, dst))
      return;
  }
}

// Sizes in attributes are those of one rank: of a view of the gathered whole, one of them grows.
bool Candidates::with_sizes(const Transition &row, llvm::ArrayRef<uint32_t> operands,
                            WrittenKind src, WrittenKind dst) {
  const rules::Violation &violation = search_.finding.violation;
  bool cut = violation.is<rules::StridedShard>() || violation.is<rules::StridedUneven>();
  const ir::AttrValue *shape = program_.find(search_.inst.attrs, "shape");
  if (!cut || !shape || shape->form != ir::AttrForm::List)
    return false;
  const ir::AttrList sizes = program_.lists[shape->as<ir::AttrListId>()];
  if (llvm::any_of(sizes.items, [](const ir::AttrValue &item) {
        return item.form != ir::AttrForm::Integer || item.as_integer() < 1;
      }))
    return false;
  for (size_t i = 0; i < sizes.items.size(); ++i) {
    ir::AttrList grown = sizes;
    int64_t size = 0;
    if (symbolic() || __builtin_mul_overflow(grown.items[i].as_integer(), rank_count(), &size))
      continue;
    grown.items[i] = ir::AttrValue::integer(size);
    std::string text;
    for (const ir::AttrValue &item : grown.items)
      text += (text.empty() ? "" : ", ") + std::to_string(item.as_integer());
    ir::AttrsId attrs = state_.with(search_.inst.attrs, "shape",
                                    ir::AttrValue::list(program_.lists.add(std::move(grown))));
    if (try_row(row, operands, src, dst, attrs, fmt::format(", then shape = [{}]", text)))
      return true;
  }
  return false;
}

// Where operands disagree, the other one's dimension is likelier than any.
llvm::SmallVector<unsigned, 6> Candidates::dims_to_try(unsigned rank) const {
  llvm::SmallVector<unsigned, 6> dims;
  if (const auto *clash = search_.finding.violation.as<rules::SpecMismatch>();
      clash && static_cast<unsigned>(clash->other_dim) < rank)
    dims.push_back(static_cast<unsigned>(clash->other_dim));
  for (unsigned dim = 0; dim < rank; ++dim)
    if (!llvm::is_contained(dims, dim))
      dims.push_back(dim);
  return dims;
}

// Gathering is offered along the dimension that is sharded, or that the program says is: never
// along a guess.
bool Candidates::sharded_here(const Transition &row, ValueId value, unsigned dim) const {
  if (row.src != Kind::Varying)
    return true;
  AxisId axis = search_.axes.first();
  const ir::Type &found = program_.types[state_.known(value).type];
  ir::TypeId declared = program_.values[value].declared;
  return found.dim(axis) == dim || (declared.valid() && program_.types[declared].dim(axis) == dim);
}

bool Candidates::try_row(const Transition &row, llvm::ArrayRef<uint32_t> operands, WrittenKind src,
                         WrittenKind dst, ir::AttrsId attrs, llvm::StringRef then) {
  Edit edit{.inst = search_.id,
            .attrs = attrs,
            .mover = state_.op(row.op),
            .operand_attrs = words(src, dst)};
  Fix fix;
  fix.inst = search_.id;
  fix.attrs = attrs;
  fix.operands.assign(operands.begin(), operands.end());
  fix.changes_value = !keeps_value(row);
  std::string names, axes = axes_text(search_.axes);
  for (uint32_t operand : operands) {
    ValueId value = search_.tensors[operand];
    rules::TensorInfo before = state_.known(value);
    std::optional<rules::TensorInfo> after =
        search_.walk.transition(state_.op(row.op), words(src, dst), search_.inst.context, before);
    if (!after)
      return false;
    edit.operands.push_back({operand, *after});
    fix.steps.push_back({value, row.op, words(src, dst), before, *after});
    fix.changes_shape |= after->shape != before.shape;
    add_backward(edit, row, value);
    add_price(fix, row, before, *after);
    std::string name = ir::print_value(program_, value);
    names += (names.empty() ? "" : " and ") + name;
    fix.replacement += fmt::format("{}{}.fixed = {} {} {{ axis = {}, src = {}, dst = {} }}",
                                   fix.replacement.empty() ? "" : "\n", name, row.name(), name,
                                   axes, ir::print(src), ir::print(dst));
  }
  state_.tried = true;
  if (!search_.repairs(edit))
    return false;
  fix.remark = then.str();
  fix.dual_too = then.empty() && !edit.gradients.empty();
  if (!edit.gradients.empty())
    fix.remark += fmt::format(", and {} of the gradient", row.dual.name());
  fix.text = fmt::format("{}({}, {}, src={}, dst={})", row.name(), names, axes, ir::print(src),
                         ir::print(dst)) +
             fix.remark;
  found_.push_back(std::move(fix));
  return true;
}

// Where the program contains its backward, the dual belongs to the edit.
void Candidates::add_backward(Edit &edit, const Transition &row, ValueId value) {
  for (ValueId gradient : state_.gradients_of(value))
    edit.gradients.push_back(gradient);
  edit.dual_op = state_.op(row.dual.op);
  edit.dual_attrs = words(std::nullopt, WrittenKind{.kind = row.dual.dst});
}

} // namespace spmd::checker
