// The manual cannot rot: the programs in the text of each violation are run.
#include "tests/file_test/run_case.h"

#include "checker/report/report.h"
#include "checker/report/savings.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::tests {
namespace {

// The findings of a program, and whatever else is wrong with it as an example.
std::vector<std::string> names_drawn(std::string_view text, const std::string &label, bool costs,
                                     Problems &problems) {
  std::vector<std::string> names;
  std::optional<ir::Program> program;
  for (const ir::InputError &error : read_and_verify(text, program))
    problems.push_back(
        fmt::format("{}: {}:{}: {}: {}", label, error.line, error.col, error.name, error.message));
  if (!problems.empty())
    return names;
  checker::CheckOptions options = default_options();
  checker::CheckResult result = checker::check(*program, options);
  test_properties(label, *program, result, options, problems);
  for (const checker::Finding &finding : result.findings)
    if (!finding.suppressed)
      names.emplace_back(finding.info().name);
  for (const checker::Saving &saving : checker::savings_of(*program, result))
    if (costs)
      names.emplace_back(saving.finding.info().name);
  return names;
}

void run_wrong(const rules::DiagnosticInfo &info, Problems &problems) {
  std::vector<std::string> names =
      names_drawn(info.wrong, fmt::format("{} (wrong)", info.name), info.is_cost, problems);
  if (problems.empty() && !llvm::is_contained(names, info.name))
    problems.push_back(fmt::format("{}: its wrong program does not trigger it", info.name));
  for (const std::string &name : names)
    if (name != info.name)
      problems.push_back(fmt::format("{}: its wrong program triggers [{}] too", info.name, name));
}

void run_right(const rules::DiagnosticInfo &info, Problems &problems) {
  for (const std::string &name :
       names_drawn(info.right, fmt::format("{} (right)", info.name), info.is_cost, problems))
    problems.push_back(fmt::format("{}: its right program triggers [{}]", info.name, name));
}

Problems run_one(const rules::DiagnosticInfo &info) {
  Problems problems;
  if (info.explain.empty())
    problems.push_back(fmt::format("{}: no manual text (explain)", info.name));
  if (info.drawn_by != rules::ReportedBy::Check && !info.is_cost) {
    if (!info.wrong.empty() || !info.right.empty())
      problems.push_back(fmt::format("{}: checking its program does not trigger it", info.name));
    return problems;
  }
  if (info.wrong.empty() || info.right.empty()) {
    problems.push_back(
        fmt::format("{}: no program that triggers it, or no repair (wrong, right)", info.name));
    return problems;
  }
  run_wrong(info, problems);
  run_right(info, problems);
  return problems;
}

} // namespace

std::vector<ManualCase> run_manual() {
  std::vector<ManualCase> cases;
  for (const rules::DiagnosticInfo *info : rules::all_violations())
    cases.push_back({fmt::format("manual of {}", info->name), run_one(*info)});
  return cases;
}

} // namespace spmd::tests
