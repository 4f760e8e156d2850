// Findings go through the reports of spmdlint; all else is one line.
#include "runtime/cli/run/reporter.h"

#include "checker/program_queries.h"

#include "ir/support/escape.h"

#include <fmt/format.h>

namespace spmd::runtime {

using checker::ExitCode;

checker::Place place_of_inst(const ir::Program &program, ir::InstId inst) {
  if (inst.valid() && program.insts[inst].bwd_of.valid())
    inst = checker::defining_inst(program, program.insts[inst].bwd_of);
  return inst.valid() ? checker::Place::inst(inst) : kWholeFile;
}

bool Reporter::stop(ExitCode code, const std::string &reason) {
  checker::say(reason);
  return stop(code);
}
bool Reporter::stop_at_file(ExitCode code, const std::string &reason) {
  return stop(code, fmt::format("{}: {}", options_.file, reason));
}
bool Reporter::stop_at_file(ExitCode code, llvm::Error error) {
  return stop_at_file(code, llvm::toString(std::move(error)));
}

bool Reporter::refuse(ir::Program &program, rules::Violation violation, checker::Place place) {
  report(program, checker::Finding{std::move(violation), place});
  return stop(ExitCode::Call);
}

void Reporter::report(ir::Program &program, std::optional<std::vector<checker::Finding>> findings) {
  if (findings)
    read_.result.findings = std::move(*findings);
  checker::ReportOptions options = checker::report_options(options_.shared);
  checker::Report report = checker::make_report(read_.input.name, read_.input.bytes(), program,
                                                read_.result, read_.check_options, options);
  if (!checker::render(options_.shared, report, sources_))
    add_code(ExitCode::Call);
}
void Reporter::report(ir::Program &program, checker::Finding finding) {
  report(program, std::vector<checker::Finding>{std::move(finding)});
}

void Reporter::note(const std::string &text) {
  if (!options_.shared.quiet)
    checker::say(text);
}

void Reporter::print(const std::string &text) {
  std::string problem = checker::write_stdout(ir::printable_lines(text));
  if (!problem.empty())
    stop(ExitCode::Call, problem);
}

} // namespace spmd::runtime
