// The order of the steps of one case.
#include "tests/file_test/run_case.h"

#include <fmt/format.h>

namespace spmd::tests {
namespace {

// Input errors by line, so that assertions can be compared with them.
Observation only_errors(std::vector<ir::InputError> errors) {
  Observation observation;
  observation.errors = std::move(errors);
  return observation;
}

void run_text(const TestCase &test, Session &session, Problems &problems) {
  Comments comments = read_comments(test.text);
  for (const std::string &problem : comments.problems)
    problems.push_back(fmt::format("{}: at line {}", test.name(), problem));
  std::optional<ir::Program> program;
  std::vector<ir::InputError> errors = read_and_verify(test.text, program);
  if (!errors.empty())
    return compare_assertions(test, comments, only_errors(std::move(errors)), session, problems);
  checker::CheckResult result = checker::check(*program, comments.options);
  test_properties(test.name(), *program, result, comments.options, problems);
  if (comments.only_read)
    return;
  session.coverage.record(*program, result);
  compare_assertions(test, comments, observe(test.text, *program, result, comments.options),
                     session, problems);
  compare_goldens(test, comments.goldens, *program, result, comments.options, session, problems);
}

// What a trace draws is said by its `expect` entries or by goldens beside it; else it draws no
// error.
void run_json(const TestCase &test, Session &session, Problems &problems) {
  std::optional<ir::Program> program;
  for (const ir::InputError &error : read_and_verify(test.text, program))
    problems.push_back(fmt::format("{}: {}: {} at byte {} {}", test.name(), error.name,
                                   error.message, error.offset, error.path));
  if (!problems.empty())
    return;
  checker::CheckOptions options = default_options();
  checker::CheckResult result = checker::check(*program, options);
  test_properties(test.name(), *program, result, options, problems);
  session.coverage.record(*program, result);
  std::vector<std::string> goldens = goldens_beside(test);
  if (!program->expectations.empty() || goldens.empty())
    compare_expectations(test, *program, result, problems);
  compare_goldens(test, goldens, *program, result, options, session, problems);
}

} // namespace

Problems run_case(const TestCase &test, Session &session) {
  Problems problems;
  if (test.form == TestCase::Form::Json)
    run_json(test, session, problems);
  else
    run_text(test, session, problems);
  return problems;
}

} // namespace spmd::tests
