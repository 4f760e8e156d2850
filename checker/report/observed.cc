// What ranks were seen to have of a declared value, and what was measured of its gradient; where
// the program sums it.
#include "checker/report/provenance.h"

#include "checker/program_queries.h"

#include "ir/dialect/print_type.h"
#include "ir/text/text.h"
#include "rules/ops/registry.h"
#include "rules/shards/remesh.h"
#include "rules/violations/gradients.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::ValueId;

namespace {

// The first collective over one of the axes, or any where none are given, that takes what the
// gradient of the parameter has become; none if there is none.
InstId collective_of_gradient(const ir::Program &program, ValueId param, AxisSet axes = {}) {
  llvm::DenseSet<uint32_t> made_of_it;

  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i) {
    const InstId id{i};
    const ir::Inst inst = program.insts[id];
    const bool takes = !made_of_it.empty() &&
                       llvm::any_of(tensors_of(program, id),
                                    [&](ValueId one) { return made_of_it.contains(one.index); });
    if (takes && rules::resolve_op(program, inst.op).form == rules::OpForm::Transition &&
        (axes.empty() || runs_over(program, id, axes)))
      return id;
    for (uint32_t r = 0; r < inst.result_count; ++r)
      if (takes || program.values[inst.result(r)].grad_of == param)
        made_of_it.insert(inst.result(r).index);
  }
  return {};
}

} // namespace

llvm::SmallVector<Note, 2> notes_of_measured(const ir::Program &program, ValueId value) {
  auto name = [&](InstId inst) {
    return std::string_view(program.op_name(program.insts[inst].op));
  };
  llvm::SmallVector<Note, 2> notes;
  if (InstId own = collective_of_gradient(program, value); own.valid())
    notes.push_back({Note::Form::Since, Place::inst(own), true,
                     fmt::format("`{}` is the first collective that takes it", name(own))});
  else
    notes.push_back({Note::Form::Since, {}, false, "no collective takes it"});
  for (const ir::Param &param : program.params) {
    if (!param.gradient_ratio || !rules::describe_gradient_ratio(*param.gradient_ratio).empty())
      continue;
    const std::string right = ir::print_named(program, param.value);
    if (InstId sum = collective_of_gradient(program, param.value); sum.valid())
      notes.push_back({Note::Form::Because, Place::inst(sum), true,
                       fmt::format("`{}` takes that of {}, which is the slope", name(sum), right)});
    else
      notes.push_back({Note::Form::Because,
                       {},
                       false,
                       fmt::format("that of {} is the slope, and no collective takes it", right)});
    break;
  }
  return notes;
}

bool is_observed(const ir::Program &program, ValueId value, AxisId axis) {
  const ir::Param *param = program.find_param(value);
  if (!param || !param->observed.valid() || !program.values[value].declared.valid())
    return false;
  const ir::MeshId mesh = program.types[program.values[value].declared].mesh();
  return rules::axes_of(program, param->observed, mesh).contains(axis);
}

Note note_of_observed(const ir::Program &program, ValueId value, AxisId axis,
                      std::string_view passed) {
  const ir::Type &type = program.types[program.values[value].declared];
  Note note = note_at_declaration(program, value);
  const std::string axis_name = ir::print_axes(program, type.mesh(), AxisSet(axis));
  const std::string name = ir::print_named(program, value);
  const std::optional<Kind> kind = type.kind(axis);
  if (kind == Kind::Varying) {
    note.text = fmt::format("{} was seen to differ between ranks of {}{}", name, axis_name, passed);
    return note;
  }
  note.text =
      fmt::format("{} was seen to be the same on all ranks of {}{}", name, axis_name, passed);
  if (!kind || program.find_param(value)->role != ir::Role::Param)
    return note;
  if (*kind == Kind::Invariant) {
    note.text += "; nothing sums its gradient over them";
    return note;
  }
  if (InstId sum = collective_of_gradient(program, value, AxisSet(axis)); sum.valid()) {
    llvm::StringRef op = program.op_name(program.insts[sum].op);
    note.text += fmt::format("; `{}` sums its gradient over them", std::string_view(op));
    note.place = Place::inst(sum);
  }
  return note;
}

} // namespace spmd::checker
