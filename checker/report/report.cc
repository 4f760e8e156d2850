// Which findings are selected, and where they are. Relies on origins (byte offsets) where a program
// states no source frames.
#include "checker/report/report.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace spmd::checker {
namespace {

constexpr FindingGroup kGroups[] = {
    {"default", "what is wrong, suspicious or not known",
     [](const rules::DiagnosticInfo &finding) { return !finding.is_cost; }},
    {"perf", "communication that could be spared",
     [](const rules::DiagnosticInfo &finding) { return finding.is_cost; }},
    {"all", "every finding", [](const rules::DiagnosticInfo &) { return true; }},
};

bool names(llvm::ArrayRef<std::string> list, const rules::DiagnosticInfo &finding) {
  return llvm::any_of(list, [&](const std::string &entry) {
    const auto *group =
        llvm::find_if(kGroups, [&](const FindingGroup &row) { return row.name == entry; });
    return entry == finding.name || (group != std::end(kGroups) && group->contains(finding));
  });
}

// A declaration that a recorder has no place for stands where it is read first.
ir::LocId loc_of(const Report &report, const Place &place) {
  const ir::Program &program = *report.program;
  if (place.form == Place::Form::Inst)
    return program.insts[place.as_inst()].loc;
  if (place.form != Place::Form::Param)
    return {};
  const ir::Param &param = program.params[place.index];
  return param.loc.valid() ? param.loc : report.first_uses.lookup(param.value.index);
}

void locate_in_input(const Report &report, uint64_t offset, SourcePlace &place) {
  place.path = report.input;
  place.in_input = true;
  std::tie(place.line, place.col) = report.lines.at(offset);
}

void locate_in_source(const ir::Program &program, const ir::Frame &frame, SourcePlace &place) {
  place.file = frame.file;
  place.path = program.strings[program.files[frame.file].path].str();
  place.line = frame.line, place.col = frame.col;
  place.end_line = frame.end_line, place.end_col = frame.end_col;
}

std::string shown_path(const Report &report, const SourcePlace &place) {
  bool named = place.file.valid() && place.file.index < report.shown_paths.size();
  return named ? report.shown_paths[place.file.index] : place.path;
}

} // namespace

llvm::ArrayRef<FindingGroup> finding_groups() { return kGroups; }

bool selected(const ReportOptions &options, const rules::DiagnosticInfo &finding) {
  bool wanted =
      options.select.empty() ? kGroups[0].contains(finding) : names(options.select, finding);
  return wanted && !names(options.ignore, finding);
}

std::string scope_of(const Report &report, const Place &place) {
  const ir::Program &program = *report.program;
  ir::LocId loc = loc_of(report, place);
  if (!loc.valid() || !program.locs[loc].scope.valid())
    return "";
  return program.strings[program.locs[loc].scope].str();
}

ir::FrameId frame_of(const Report &report, const Place &place) {
  if (place.form == Place::Form::Frame)
    return ir::FrameId{place.index};
  ir::LocId loc = loc_of(report, place);
  return loc.valid() ? report.program->locs[loc].frame : ir::FrameId{};
}

uint64_t byte_of(const ir::Program &program, const Place &place) {
  auto at = [&](const std::vector<uint64_t> &origins) {
    return place.index < origins.size() ? origins[place.index] : 0;
  };
  switch (place.form) {
  case Place::Form::Inst:
    return at(program.origins);
  case Place::Form::Param:
    return at(program.param_origins);
  case Place::Form::Output:
    return program.outputs[place.index].origin;
  case Place::Form::Rule:
    return program.rules[place.index].origin;
  case Place::Form::Suppression:
    return program.suppressions[place.index].origin;
  case Place::Form::Function:
    return program.functions[ir::FunctionId{place.index}].origin;
  case Place::Form::Symbol:
    return program.symbols[place.index].origin;
  case Place::Form::File:
  case Place::Form::Frame:
    return 0;
  }
  return 0;
}

SourcePlace locate(const Report &report, const Place &place) {
  SourcePlace found = locate_as_stated(report, place);
  found.path = shown_path(report, found);
  return found;
}

SourcePlace locate_as_stated(const Report &report, const Place &place) {
  const ir::Program &program = *report.program;
  SourcePlace found;
  found.scope = scope_of(report, place);
  // What is said of the program as a whole stands at none of the files that it was made from.
  if (place.form == Place::Form::File && place.index >= program.files.size()) {
    found.path = report.input;
    return found;
  }
  if (place.form == Place::Form::File) {
    found.file = ir::FileId{place.index};
    found.path = program.strings[program.files[found.file].path].str();
    return found;
  }
  if (ir::FrameId frame = frame_of(report, place); frame.valid())
    locate_in_source(program, program.frames[frame], found);
  else
    locate_in_input(report, byte_of(program, place), found);
  return found;
}

std::vector<SourcePlace> callers(const Report &report, const Place &place) {
  std::vector<SourcePlace> found;
  const ir::Program &program = *report.program;
  ir::FrameId frame = frame_of(report, place);
  while (frame.valid() && (frame = program.frames[frame].caller).valid()) {
    locate_in_source(program, program.frames[frame], found.emplace_back());
    found.back().path = shown_path(report, found.back());
  }
  return found;
}

std::string print(const SourcePlace &place) {
  std::string text = place.path;
  if (place.line)
    text += fmt::format(":{}", place.line);
  if (place.line && place.col)
    text += fmt::format(":{}", place.col);
  return text;
}

} // namespace spmd::checker
