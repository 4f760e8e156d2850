// What holds for every program: every format carries all of it, memoisation changes nothing, and
// each can be judged in every mode.
#include "tests/file_test/run_case.h"

#include "checker/report/report.h"
#include "ir/dialect/print_type.h"
#include "ir/input/input.h"
#include "ir/text/text.h"

#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

#include <algorithm>

namespace spmd::tests {
namespace {

// The verdict as text, so that those of two programs can be compared. Sorted: a document may have
// its functions in another place, and then numbers its values and instructions otherwise.
std::string verdict(const ir::Program &program, const checker::CheckResult &result) {
  std::vector<std::string> lines;
  for (const checker::Finding &finding : result.findings)
    lines.push_back(fmt::format("{} {}{}", finding.info().name, message_of(program, finding),
                                finding.suppressed ? " suppressed" : ""));
  for (uint32_t i = 0; i < program.values.size(); ++i) {
    ir::ShapeId shape = result.shapes[i];
    lines.push_back(fmt::format("{}: {} {}", ir::print_value(program, ir::ValueId{i}),
                                kinds_text(program, result, ir::ValueId{i}),
                                shape.valid() ? ir::print_shape(program, shape) : ""));
  }
  std::sort(lines.begin(), lines.end());
  return llvm::join(lines, "\n");
}

// The first line in which two texts differ.
std::string first_difference(llvm::StringRef a, llvm::StringRef b) {
  while (!a.empty() || !b.empty()) {
    auto [left, rest_a] = a.split('\n');
    auto [right, rest_b] = b.split('\n');
    if (left != right)
      return fmt::format("`{}` and `{}`", left.str(), right.str());
    a = rest_a, b = rest_b;
  }
  return "";
}

void test_round_trip(const std::string &name, const ir::Format &row, const ir::Program &program,
                     const checker::CheckResult &result, const checker::CheckOptions &options,
                     Problems &problems) {
  std::string text = row.print(program);
  ir::ReadResult again = ir::read_program(text, {});
  if (!again.errors.empty()) {
    const ir::InputError &error = again.errors.front();
    problems.push_back(fmt::format("{}: printed as {}, it cannot be read: {} at {}:{} (byte {})",
                                   name, row.name, error.message, error.line, error.col,
                                   error.offset));
    return;
  }
  auto same = [&](std::string_view what, const std::string &a, const std::string &b) {
    if (a != b)
      problems.push_back(fmt::format("{}: {} differs after a round trip through {}: {}", name, what,
                                     row.name, first_difference(a, b)));
  };
  same("the print", text, row.print(again.program));
  same("the text", ir::print_text(program), ir::print_text(again.program));
  checker::CheckResult checked = check(again.program, options);
  same("the verdict", verdict(program, result), verdict(again.program, checked));
}

bool same_findings(const checker::CheckResult &a, const checker::CheckResult &b) {
  if (a.findings.size() != b.findings.size())
    return false;
  for (size_t i = 0; i < a.findings.size(); ++i)
    if (!(a.findings[i].violation == b.findings[i].violation &&
          a.findings[i].place == b.findings[i].place))
      return false;
  return true;
}

} // namespace

void test_properties(const std::string &name, ir::Program &program,
                     const checker::CheckResult &result, const checker::CheckOptions &options,
                     Problems &problems) {
  for (const ir::Format &row : ir::formats())
    test_round_trip(name, row, program, result, options, problems);
  checker::CheckOptions plain = options;
  plain.memoise = false;
  checker::CheckResult unmemoised = check(program, plain);
  if (result.types != unmemoised.types || result.shapes != unmemoised.shapes ||
      !same_findings(result, unmemoised))
    problems.push_back(fmt::format("{}: memoisation changes the result", name));
  // Judged without declarations, whatever it declares: no program ends the checker.
  ir::ReadResult again = ir::read_text(ir::print_text(program), {});
  plain.mode = ir::Mode::Gradual;
  if (again.errors.empty())
    check(again.program, plain);
}

} // namespace spmd::tests
