// The `expect` entries of a trace in JSON: findings at ops, and types of values.
#include "tests/file_test/kinds.h"
#include "tests/file_test/run_case.h"

#include "checker/report/report.h"
#include "ir/text/text.h"

#include <fmt/format.h>

namespace spmd::tests {
namespace {

std::string expected_axes(const ir::Program &program, const ir::Expectation &expectation) {
  std::string axes;
  for (ir::StringId name : expectation.axes)
    axes += (axes.empty() ? "" : ", ") + program.strings[name].str();
  return sorted_axes(axes);
}

bool is_expected(const ir::Program &program, const ir::Expectation &expectation,
                 const checker::Finding &finding) {
  rules::Severity severity =
      expectation.warning ? rules::Severity::Warning : rules::Severity::Error;
  return expectation.finding.valid() && finding.place == checker::Place::inst(expectation.inst) &&
         finding.info().name == std::string_view(program.strings[expectation.finding]) &&
         finding.severity() == severity &&
         sorted_axes(axes_text(program, finding)) == expected_axes(program, expectation);
}

std::string place_of(const TestCase &test, const ir::Program &program,
                     const checker::Place &place) {
  return test.place(ir::line_and_column(test.text, origin_of(program, place)).first);
}

bool has_expected_type(const ir::Program &program, const checker::CheckResult &result,
                       const ir::Expectation &expectation) {
  std::string expected = expectation.type.valid()
                             ? ir::print_kinds(program, program.types[expectation.type])
                             : std::string();
  return equal_kinds(expected, kinds_text(program, result, expectation.value),
                     {.erased = is_erased(program, {})});
}

} // namespace

void compare_expectations(const TestCase &test, const ir::Program &program,
                          const checker::CheckResult &result, Problems &problems) {
  std::vector<bool> expected(result.findings.size());
  for (const ir::Expectation &expectation : program.expectations) {
    bool met = !expectation.finding.valid() && has_expected_type(program, result, expectation);
    for (size_t i = 0; i < result.findings.size(); ++i)
      if (is_expected(program, expectation, result.findings[i]))
        met = expected[i] = true;
    if (met)
      continue;
    std::string place = place_of(test, program, checker::Place::inst(expectation.inst));
    if (expectation.finding.valid())
      problems.push_back(fmt::format("{}: - [{}] {}", place,
                                     std::string_view(program.strings[expectation.finding]),
                                     expected_axes(program, expectation)));
    else
      problems.push_back(fmt::format("{}: type of {} is {}", place,
                                     ir::print_value(program, expectation.value),
                                     kinds_text(program, result, expectation.value)));
  }
  for (size_t i = 0; i < result.findings.size(); ++i) {
    const checker::Finding &finding = result.findings[i];
    if (expected[i] || finding.suppressed || finding.severity() == rules::Severity::Info)
      continue;
    problems.push_back(fmt::format("{}: + [{}] {}", place_of(test, program, finding.place),
                                   finding.info().name, message_of(program, finding)));
  }
}

} // namespace spmd::tests
