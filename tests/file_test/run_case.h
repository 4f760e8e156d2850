// Runs one case: reads, checks, compares with what it asserts, and tests what holds for every
// program.
#pragma once

#include "tests/file_test/coverage.h"
#include "tests/file_test/edits.h"
#include "tests/file_test/observation.h"
#include "tests/file_test/test_case.h"

#include <string>
#include <vector>

namespace spmd::tests {

// What is shared by the cases of one run.
struct Session {
  bool update = false; // failing assertions are rewritten
  Edits edits;
  Coverage coverage;
};

// Each names file and line: `x.spmd:7: - // error: [wrong-source] tp`. Empty if the case holds.
using Problems = std::vector<std::string>;

Problems run_case(const TestCase &test, Session &session);

// The steps, each in a file of its own.
void compare_assertions(const TestCase &test, const Comments &comments,
                        const Observation &observation, Session &session, Problems &problems);
void compare_expectations(const TestCase &test, const ir::Program &program,
                          const checker::CheckResult &result, Problems &problems);
// Round trips through text and JSON; memo on and off.
void test_properties(const std::string &name, ir::Program &program,
                     const checker::CheckResult &result, const checker::CheckOptions &options,
                     Problems &problems);
// Rendered output beside the case, as asked for by comments or (JSON) by the files that are there.
void compare_goldens(const TestCase &test, const std::vector<std::string> &formats,
                     ir::Program &program, const checker::CheckResult &result,
                     const checker::CheckOptions &options, Session &session, Problems &problems);
std::vector<std::string> goldens_beside(const TestCase &test);

// The manual: every violation has a text, a program that triggers it and nothing else, and a repair
// that draws nothing. One entry per violation.
struct ManualCase {
  std::string name;
  Problems problems;
};
std::vector<ManualCase> run_manual();

} // namespace spmd::tests
