// Words for values and operations, by the printers of types and instructions.
#include "checker/cli/inputs/described.h"

#include "checker/program_queries.h"

#include "ir/dialect/print_type.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <algorithm>

namespace spmd::checker {

std::string Described::type(ir::ValueId value) const {
  const ir::Program &program = *report_.program;
  ir::TypeId type = report_.result->types[value.index];
  if (!type.valid())
    return "not reached";
  std::string text =
      ir::print_type(program, program.types[type], report_.result->shapes[value.index],
                     program.values[value].global_shape);
  if (words_ != ir::Dialect::Spmd)
    text += fmt::format("; {}: {}", ir::kDialectWords[static_cast<unsigned>(words_)],
                        ir::print_kinds_in(program, program.types[type], words_));
  return text;
}

std::string Described::typed(ir::ValueId value) const {
  return fmt::format("  {}: {}\n", ir::print_named(*report_.program, value), type(value));
}

std::string Described::at(const Place &place) const {
  SourcePlace found = locate(report_, place);
  return print(found) + (found.scope.empty() ? "" : " in " + found.scope);
}

std::string Described::why(ir::ValueId value) const {
  const ir::Program &program = *report_.program;
  const CheckResult &result = *report_.result;
  std::string text;
  for (const Note &note : explain_value(program, result, value))
    text += fmt::format("    {}{}: {}\n", kNoteWords[static_cast<unsigned>(note.form)],
                        note.has_place ? " " + print(locate(report_, note.place)) : "", note.text);
  const ir::TypeId id = result.types[value.index];
  if (!result.gradual || !id.valid() || value.index >= result.proved.size())
    return text;
  const ir::Type &type = program.types[id];
  const ir::AxisSet axes = program.meshes[type.mesh()].typed_axes();
  const ir::AxisSet proved = result.proved[value.index] & axes;
  if (proved)
    text += fmt::format("    proved on {}\n", ir::print_axes(program, type.mesh(), proved));
  if (axes - proved)
    text +=
        fmt::format("    not proved on {}\n", ir::print_axes(program, type.mesh(), axes - proved));
  return text;
}

std::string Described::instruction(ir::InstId id, bool reasons) const {
  const ir::Program &program = *report_.program;
  const ir::Inst &inst = program.insts[id];
  std::string text = fmt::format("{}: {}\n", at(Place::inst(id)), ir::print_inst(program, id));
  llvm::SmallVector<ir::ValueId, 8> shown;
  for (uint32_t i = 0; i < inst.result_count; ++i)
    shown.push_back(inst.result(i));
  for (ir::ValueId value : tensors_of(program, id))
    if (!llvm::is_contained(shown, value))
      shown.push_back(value);
  for (size_t i = 0; i < shown.size(); ++i)
    text += typed(shown[i]) + (reasons && i < inst.result_count ? why(shown[i]) : "");
  return text;
}

std::vector<ir::InstId> Described::at_line(llvm::StringRef path, uint32_t line) const {
  std::vector<ir::InstId> found;
  for (uint32_t i = 0; i < report_.program->insts.size(); ++i) {
    SourcePlace place = locate(report_, Place::inst(ir::InstId{i}));
    llvm::StringRef own = place.path;
    bool same = own == path || (own.size() > path.size() && own.take_back(path.size()) == path &&
                                own[own.size() - path.size() - 1] == '/');
    if (same && place.line <= line && std::max(place.line, place.end_line) >= line)
      found.push_back(ir::InstId{i});
  }
  return found;
}

} // namespace spmd::checker
