// The `expect` entries of a trace in JSON: findings at ops, and types of values.
#include "tests/file_test/kinds.h"
#include "tests/file_test/run_case.h"

#include "checker/report/expected.h"

#include <fmt/format.h>

namespace spmd::tests {

void compare_expectations(const TestCase &test, const ir::Program &program,
                          const checker::CheckResult &result, Problems &problems) {
  for (const checker::ExpectationOutcome &each :
       checker::outcomes_of_expectations(program, result)) {
    if (each.difference.empty())
      continue;
    const auto [line, column] = ir::line_and_column(test.text, origin_of(program, each.place));
    problems.push_back(fmt::format("{}: {}", test.place(line), each.difference));
  }
}

} // namespace spmd::tests
