// The `expect` entries of a trace in JSON: findings at ops, and types of values.
#include "tests/file_test/kinds.h"
#include "tests/file_test/run_case.h"

#include "checker/report/expected.h"

#include <fmt/format.h>

namespace spmd::tests {

void compare_expectations(const TestCase &test, const ir::Program &program,
                          const checker::CheckResult &result, Problems &problems) {
  for (const checker::Unmet &unmet : checker::unmet_expectations(program, result))
    problems.push_back(fmt::format(
        "{}: {}", test.place(ir::line_and_column(test.text, origin_of(program, unmet.place)).first),
        unmet.text));
}

} // namespace spmd::tests
