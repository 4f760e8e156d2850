// The line is taken apart at the columns that the recorder has noted.
#include "checker/render/source/source_edit.h"

#include "checker/fix/calls.h"
#include "checker/program_queries.h"
#include "checker/render/source/unified_diff.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

#include <map>

namespace spmd::checker {
namespace {

bool same_range(const SourcePlace &a, const SourcePlace &b) {
  return a.file == b.file && a.line == b.line && a.col == b.col && a.end_line == b.end_line &&
         a.end_col == b.end_col;
}

// Whether the expression that makes the value is read by that instruction alone, as far as the
// forward goes: what a backward has kept is what autograd keeps then.
bool is_read_by_one(const Report &report, ir::ValueId value, ir::InstId reader,
                    const SourcePlace &made) {
  const ir::Program &program = *report.program;
  for (uint32_t i = 0; i < program.insts.size(); ++i) {
    const ir::Inst &inst = program.insts[ir::InstId{i}];
    const auto tensors = tensors_of(program, ir::InstId{i});
    if (!llvm::is_contained(tensors, value))
      continue;
    if (same_range(locate(report, Place::inst(ir::InstId{i})), made))
      return false; // a part of what the expression computes
    if (i != reader.index && inst.phase == program.insts[reader].phase)
      return false;
  }
  return true;
}

bool is_name(llvm::StringRef text) {
  return !text.empty() && !llvm::isDigit(text.front()) &&
         llvm::all_of(text, [](char c) { return llvm::isAlnum(c) || c == '_' || c == '.'; });
}

// The line with the fix around the expression, or below the assignment of it; empty: the framework
// has no call for the fix, or there is no such assignment. `first`, `last`: bytes of the
// expression.
std::string changed(const ir::Program &program, const Finding &finding, const Fix &fix,
                    llvm::StringRef line, size_t first, size_t last) {
  const auto call_on = [&](llvm::StringRef tensor) {
    return script_call(program, finding, fix, std::string_view(tensor.data(), tensor.size()));
  };
  const std::optional<ScriptCall> call = call_on(line.slice(first, last));
  if (call && call->form == ScriptCall::Form::Expression)
    return line.take_front(first).str() + call->text + line.drop_front(last).str();
  llvm::StringRef target = line.take_front(first).rtrim();
  if (!call || call->form != ScriptCall::Form::Statement || !target.consume_back("=") ||
      !is_name(target.trim()) || !line.drop_front(last).trim().empty())
    return "";
  const std::string indent(line.size() - line.ltrim().size(), ' ');
  return fmt::format("{}\n{}{}", line.str(), indent, call_on(target.trim())->text);
}

} // namespace

std::optional<SourceEdit> source_edit(const Report &report, const Diagnostic &diagnostic,
                                      SourceCache &sources) {
  const ir::Program &program = *report.program;
  for (const Fix &fix : diagnostic.fixes) {
    if (fix.form != Fix::Form::Transition || fix.steps.size() != 1)
      continue;
    const ir::ValueId value = fix.steps.front().value;
    const ir::InstId made = defining_inst(program, value);
    if (!made.valid())
      continue;
    const SourcePlace place = locate(report, Place::inst(made));
    const std::optional<llvm::StringRef> line = sources.line(program, place);
    if (!line || place.in_input || place.end_line != place.line || place.end_col <= place.col ||
        place.end_col > line->size() + 1)
      continue;
    // Columns count code points.
    if (llvm::any_of(*line, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }))
      continue;
    std::string after =
        changed(program, *diagnostic.first, fix, *line, place.col - 1, place.end_col - 1);
    if (!after.empty() && is_read_by_one(report, value, fix.inst, place))
      return SourceEdit{place.file, place.line, line->str(), std::move(after)};
  }
  return std::nullopt;
}

std::string source_patch(const Report &report, SourceCache &sources, unsigned &count) {
  std::map<uint32_t, std::map<uint32_t, SourceEdit>> edits; // by file and line
  for (const Diagnostic &diagnostic : report.diagnostics)
    if (!diagnostic.first->suppressed)
      if (std::optional<SourceEdit> edit = source_edit(report, diagnostic, sources))
        count += edits[edit->file.index].try_emplace(edit->line, *edit).second;
  std::string text;
  for (const auto &[index, of_file] : edits) {
    const ir::FileId file{index};
    const llvm::StringRef before = *sources.contents(*report.program, file);
    std::string after;
    llvm::StringRef rest = before;
    for (uint32_t line = 1; !rest.empty(); ++line) {
      const size_t end = std::min(rest.size(), rest.find('\n'));
      const auto edit = of_file.find(line);
      after += edit == of_file.end() ? rest.take_front(end).str() : edit->second.after;
      after += end < rest.size() ? "\n" : "";
      rest = rest.drop_front(std::min(rest.size(), end + 1));
    }
    text += unified_diff(sources.shown_path(*report.program, file), before, after);
  }
  return text;
}

} // namespace spmd::checker
