// The search for fixes types what depends on an edit, in memory; a text is read and typed from its
// first line, so that nothing which the text brings along is overlooked.
#include "checker/report/verified_edits.h"

#include "ir/input/input.h"

#include "llvm/ADT/STLExtras.h"

#include <utility>

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
    // An info says that something is not judged, which is no new mistake; the search for fixes in
    // memory counts in the same way.
    found.all += !finding.suppressed && (finding.severity() != rules::Severity::Info ||
                                         finding.info().name == wanted.info().name);
    found.of_name += !finding.suppressed && finding.info().name == wanted.info().name;
  }
  return found;
}

// Whether the text has fewer findings than the program, and fewer of that name.
bool repairs(const Report &report, const std::string &text, const Finding &finding) {
  ir::ReadResult read = ir::read_program(text);
  if (!read.errors.empty() || !ir::verify(read.program).empty())
    return false;
  add_configured(*report.program, read.program);
  CheckResult result = check(read.program, report.check_options);
  Count before = count(report.result->findings, finding), after = count(result.findings, finding);
  if (!finding.info().is_cost)
    return after.of_name < before.of_name && after.all < before.all;
  auto left = [&](ir::Program &program, const CheckResult &of) {
    return llvm::count_if(savings_of(program, of), [&](const Saving &saving) {
      return saving.finding.violation.same_finding(finding.violation);
    });
  };
  return after.all <= before.all &&
         left(read.program, result) < left(*report.program, *report.result);
}

std::vector<TextEdit> edits_of(const Report &report, const Saving &saving) {
  if (!ir::format_of(report.bytes).by_hand)
    return {};
  return rewrite_edits(*report.program, report.bytes, saving.rewrite);
}

// The same of the canonical text of a program, where instructions stand in another order if it has
// functions.
bool holds_in_canonical_text(const Report &report, const Saving &saving) {
  ir::Program &program = *report.program;
  std::optional<int64_t> announced = std::exchange(program.op_count, std::nullopt);
  std::string text = ir::print_text(program); // with fewer ops than a recorder has counted
  program.op_count = announced;
  ir::ReadResult read = ir::read_program(text);
  if (!read.errors.empty() || program.functions.size() > 0)
    return false;
  std::vector<TextEdit> edits = rewrite_edits(read.program, text, saving.rewrite);
  return !edits.empty() && repairs(report, apply_edits(text, edits), saving.finding);
}

} // namespace

bool is_verified(const Report &report, const Saving &saving) {
  std::vector<TextEdit> edits = edits_of(report, saving);
  if (edits.empty())
    return holds_in_canonical_text(report, saving);
  return repairs(report, apply_edits(report.bytes, edits), saving.finding);
}

std::vector<TextEdit> verified_edits(const Report &report, const Finding &finding, const Fix &fix) {
  std::vector<TextEdit> edits;
  if (!finding.info().is_cost) {
    edits = text_edits(*report.program, report.bytes, fix);
  } else {
    for (const Saving &saving : report.savings)
      if (saving.finding.place == finding.place && saving.finding.violation == finding.violation)
        edits = edits_of(report, saving);
  }
  if (edits.empty() || !repairs(report, apply_edits(report.bytes, edits), finding))
    return {};
  return edits;
}

} // namespace spmd::checker
