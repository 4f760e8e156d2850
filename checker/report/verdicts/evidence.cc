// What it stands on that a declared value is cut, or the same on all ranks, where no program says
// so: docs/proof.md has the origins.
#include "checker/report/provenance.h"

#include "checker/gradual/gradual.h"
#include "checker/program_queries.h"

#include "ir/dialect/print_type.h"
#include "ir/text/text.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::ValueId;

namespace {

constexpr size_t kMostWalked = 4096; // values behind a finding

bool says(const ir::Program &program, ValueId value, AxisId axis, const ir::Type &judged) {
  const ir::TypeId id = program.values[value].declared;
  if (!id.valid())
    return false;
  const ir::Type &stated = program.types[id];
  return stated.dim(axis) == judged.dim(axis) && !stated.unknown.contains(axis) &&
         stated.same_on_all_ranks().contains(axis) == judged.same_on_all_ranks().contains(axis);
}

} // namespace

std::optional<Note> explain_evidence(const ir::Program &program, const CheckResult &result,
                                     ValueId value, AxisId axis) {
  const ir::TypeId id = result.types[value.index];
  if (!result.gradual || !id.valid() || !program.find_param(value))
    return std::nullopt;
  const ir::Type &type = program.types[id];
  if (type.unknown.contains(axis) || says(program, value, axis, type))
    return std::nullopt;
  Note note = note_at_declaration(program, value);
  const std::string name = ir::print_named(program, value);
  const std::string axes = ir::print_axes(program, type.mesh(), AxisSet(axis));
  const std::optional<unsigned> dim = type.dim(axis);
  if (!dim && !type.same_on_all_ranks().contains(axis))
    return std::nullopt;
  const std::optional<Origin> origin = result.gradual->cuts().origin(value, axis);
  if (dim && origin == Origin::Stated) // it goes with a cut that is
    return std::nullopt;
  note.form = Note::Form::Assumed;
  if (!dim) {
    note.text =
        fmt::format("{} is the same on all ranks of {}: nothing says that it differs", name, axes);
  } else if (origin == Origin::Inferred) {
    note.form = Note::Form::Because;
    note.text = fmt::format("{} cuts dimension {} of {}, inferred from the ops that use it", axes,
                            *dim, name);
  } else {
    note.text =
        fmt::format("{} cuts dimension {} of {}: the first one of more than one element, of "
                    "a batch that differs between ranks",
                    axes, *dim, name);
  }
  return note;
}

std::optional<Note> evidence_of_finding(const ir::Program &program, const CheckResult &result,
                                        llvm::ArrayRef<ValueId> operands, AxisSet axes) {
  llvm::DenseSet<uint32_t> seen;
  std::vector<ValueId> behind(operands.begin(), operands.end());
  for (size_t at = 0; at < behind.size() && at < kMostWalked; ++at) {
    const ValueId value = behind[at];
    const ir::TypeId type = result.types[value.index];
    if (!type.valid() || !seen.insert(value.index).second)
      continue;
    const AxisSet differs = axes - program.types[type].same_on_all_ranks();
    if (!differs)
      continue;
    for (AxisId axis : differs)
      if (std::optional<Note> note = explain_evidence(program, result, value, axis))
        return note;
    if (const InstId made = defining_inst(program, value); made.valid())
      llvm::append_range(behind, tensors_of(program, made));
  }
  return std::nullopt;
}

} // namespace spmd::checker
