// Files are written and times are taken with the backend of the last run.
#include "runtime/cli/run/results.h"

#include "runtime/cli/bench.h"
#include "runtime/cli/profile.h"
#include "runtime/cli/trace_out.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

using checker::ExitCode;

void Results::write() {
  if (options_.check == CheckMode::Off)
    summary_.report.claims.clear();
  if (!options_.trace_out.empty() && summary_.runs && reporter_.is_clean())
    write_trace();
  if (!options_.profile.empty() && summary_.runs && reporter_.is_clean())
    write_profile();
  if (options_.bench && summary_.runs && reporter_.is_clean())
    run_bench();
  if (!summary_.runs)
    return;
  if (options_.only.empty() || restrict_to_scope()) {
    if (!summary_.report.findings.empty() || !options_.shared.formats.empty())
      reporter_.report(planned_.program().mutable_program(), summary_.report.findings);
    if (summary_.report.refuted() || fails_on_warnings() ||
        (options_.strict && options_.check != CheckMode::Off && !summary_.all_upheld()))
      reporter_.add_code(ExitCode::Findings);
    print_table();
    write_verdicts();
  }
}

// A warning that the call wants to fail on.
bool Results::fails_on_warnings() const {
  return llvm::any_of(summary_.report.findings, [&](const checker::Finding &finding) {
    return finding.severity() <= options_.shared.fail_on;
  });
}

void Results::write_verdicts() {
  if (options_.verdicts.empty())
    return;
  summary_.seed = options_.seed;
  summary_.seeds = options_.seeds;
  std::string problem = checker::write_file(options_.verdicts,
                                            print_verdicts(summary_, planned_.program().program()));
  if (!problem.empty())
    reporter_.stop(ExitCode::Call, problem);
}

bool Results::restrict_to_scope() {
  std::string problem = only_scope(planned_.program().program(), options_.only, summary_.report);
  return problem.empty() || reporter_.stop(ExitCode::Call, problem);
}

// On stdout, unless a format that other programs read goes there.
void Results::print_table() {
  const ir::Program &program = planned_.program().program();
  bool machine = llvm::any_of(options_.shared.formats, [](const checker::FormatRequest &format) {
    return format.file.empty() && !checker::find_renderer(format.name)->for_people;
  });
  std::string text = print_summary(summary_, program);
  if (summary_.times)
    text += print_times(*summary_.times);
  if (machine && !options_.shared.quiet)
    checker::say_lines(llvm::StringRef(text).rtrim());
  else if (!machine && !options_.shared.quiet)
    reporter_.print(text);
  else if (std::string open = print_open(summary_, program); !open.empty())
    checker::say_lines(fmt::format("{}: not all was decided\n{}", options_.file,
                                   llvm::StringRef(open).rtrim().str()));
}

// What `time` measures of the last run's plan, with its inputs; on rank 0.
template <class Times, class Time> std::optional<Times> Results::measured(Time time) {
  if (!ranks_.all(runs_.prepare_last()))
    return std::nullopt;
  llvm::Expected<Times> times = time(ranks_.team());
  if (!times && ranks_.session())
    ranks_.fail(times.takeError());
  if (!times) {
    reporter_.stop_at_file(ExitCode::Input, times.takeError());
    return std::nullopt;
  }
  return ranks_.leads() ? std::optional<Times>(std::move(*times)) : std::nullopt;
}

void Results::run_bench() {
  std::optional<RunTimes> times = measured<RunTimes>([&](Team *team) {
    return time_runs(planned_.plan(), runs_.backend(), planned_.inputs(),
                     PlannedProgram::input_options(runs_.last_seed(), runs_.last_mode()), team,
                     options_.bench);
  });
  if (times)
    summary_.times = std::move(times);
}

void Results::write_profile() {
  std::optional<TimesByRank> times = measured<TimesByRank>(
      [&](Team *team) { return time_steps(planned_.plan(), runs_.backend(), team); });
  if (!times)
    return;
  std::string problem = checker::write_file(
      options_.profile,
      print_profile(planned_.program().program(), planned_.plan(), *times, !ranks_.session()));
  if (!problem.empty())
    reporter_.stop(ExitCode::Call, problem);
}

void Results::write_trace() {
  if (!ranks_.all(runs_.prepare_last()))
    return;
  std::optional<RankId> own;
  if (const Session *session = ranks_.session())
    own = session->rank();
  std::string problem =
      trace_out(planned_.program(), planned_.plan(), planned_.world(), runs_.backend(),
                {.target = options_.trace_out,
                 .ranks = options_.trace_ranks,
                 .own = own,
                 .domain = runs_.last_mode().domain,
                 .seed = runs_.last_seed(),
                 .program = options_.file});
  if (!problem.empty())
    reporter_.stop(ExitCode::Call, problem);
}

} // namespace spmd::runtime
