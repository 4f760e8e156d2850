// Applies fixes to the text of a program, one after another.
#include "checker/cli/gates/patch.h"

#include "checker/render/source/unified_diff.h"
#include "checker/report/verified_edits.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <algorithm>

namespace spmd::checker {
namespace {

constexpr unsigned kMostFixes = 200;
// The first verified edits of a finding that is left; none if there are none.
std::vector<TextEdit> next_edits(const Report &report) {
  for (const Diagnostic &diagnostic : report.diagnostics) {
    if (diagnostic.first->suppressed)
      continue;
    for (const Fix &fix : diagnostic.fixes) {
      if (fix.changes_value)
        continue;
      std::vector<TextEdit> edits = verified_edits(report, *diagnostic.first, fix);
      if (!edits.empty())
        return edits;
    }
  }
  return {};
}

} // namespace

Patch make_patch(const Input &input, const Options &options) {
  Patch patch;
  std::string text = input.bytes().str();
  while (true) {
    ir::ReadResult read = ir::read_program(text, options.read);
    if (!read.errors.empty())
      return patch;
    options.configuration.add_to(read.program);
    CheckOptions check_options = check_options_for(read.program, options);
    CheckResult result = check(read.program, check_options);
    check_options.infer_partial |= result.gradual != nullptr;
    ReportOptions wanted = options.report;
    wanted.fold = false;
    Report report = make_report(input.name, text, read.program, result, check_options, wanted);
    patch.remaining = report.errors + report.warnings;
    std::vector<TextEdit> edits =
        patch.fixed < kMostFixes ? next_edits(report) : std::vector<TextEdit>();
    if (edits.empty())
      break;
    text = apply_edits(text, edits);
    ++patch.fixed;
  }
  patch.text = unified_diff(input.name, input.bytes(), text);
  patch.after = std::move(text);
  return patch;
}

} // namespace spmd::checker
