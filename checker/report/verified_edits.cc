// The search for fixes types what depends on an edit, in memory; a text is read and typed from its
// first line, so that nothing which the text brings along is overlooked.
#include "checker/report/verified_edits.h"

#include "ir/input/input.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {
namespace {

// What the configuration adds to a program is not in its text.
void add_configured(const ir::Program &from, ir::Program &to) {
  auto copy = [&](ir::StringId id) {
    return id.valid() ? to.strings.add(from.strings[id]) : ir::StringId();
  };
  for (const ir::UserRule &rule : from.rules)
    if (rule.configured)
      to.rules.push_back({.op = copy(rule.op),
                          .equation = copy(rule.equation),
                          .like = copy(rule.like),
                          .configured = true});
  for (const ir::Suppression &row : from.suppressions)
    if (row.configured)
      to.suppressions.push_back({.finding = copy(row.finding),
                                 .scope = copy(row.scope),
                                 .loc = {},
                                 .reason = copy(row.reason),
                                 .until = copy(row.until),
                                 .configured = true});
}

struct Count {
  size_t all = 0, of_name = 0;
};
Count count(const std::vector<Finding> &findings, const Finding &wanted) {
  Count found;
  for (const Finding &finding : findings) {
    found.all += !finding.suppressed;
    found.of_name += !finding.suppressed && finding.info().name == wanted.info().name;
  }
  return found;
}

} // namespace

std::vector<TextEdit> verified_edits(const Report &report, const Finding &finding, const Fix &fix) {
  std::vector<TextEdit> edits = text_edits(*report.program, report.bytes, fix);
  if (edits.empty())
    return {};
  std::string text = apply_edits(report.bytes, edits);
  ir::ReadResult read = ir::read_program(text);
  if (!read.errors.empty())
    return {};
  add_configured(*report.program, read.program);
  CheckResult result = check(read.program, report.check_options);
  Count before = count(report.result->findings, finding), after = count(result.findings, finding);
  return after.of_name < before.of_name && after.all < before.all ? edits : std::vector<TextEdit>();
}

} // namespace spmd::checker
