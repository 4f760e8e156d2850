// A backend is kept from run to run where it can begin again.
#include "runtime/cli/run/seed_runs.h"

#include "rules/violations/commands/runs.h"

#include "ir/support/escape.h"

#include <fmt/format.h>

#include <chrono>

namespace spmd::runtime {

using checker::ExitCode;

void SeedRuns::run(uint64_t seed) {
  for (RunMode mode : planned_.modes())
    if (!run(seed, mode))
      return;
  // Rounding may hide what it could have caused: in double it is much smaller.
  bool open = ranks_.decided(
      summary_.report.count(Verdict::Undecided) + summary_.report.count(Verdict::Blind) > 0);
  if (open && options_.tier == TierChoice::Auto && !options_.f64 && options_.backend->any_numbers)
    run(seed, {Tier::Real, Domain::F64});
}

// False where nothing more is to be run.
bool SeedRuns::run(uint64_t seed, RunMode mode) {
  if (planned_.sized_by_data())
    backend_.reset(); // it may be another plan
  bool planned = !planned_.sized_by_data() || (planned_.plan_for(seed, mode) && planned_.fits());
  if (!ranks_.all(planned && prepare(seed, mode)))
    return false;
  JudgeOptions judge = judge_options(seed, mode);
  const std::vector<uint32_t> drawn = planned_.drawn_for(seed);
  judge.drawn = drawn;
  auto given = [&](size_t param) {
    return planned_.given_to_ranks(param, PlannedProgram::input_options(seed, mode));
  };
  judge.given = given;
  llvm::Expected<RunReport> report = timed_run(judge);
  if (!report)
    return stop_at(report.takeError());
  summary_.note_tier(mode.tier, mode.domain);
  bool refuted = ranks_.decided(report->refuted());
  if (summary_.runs++ == 0)
    summary_.report = std::move(*report);
  else
    join_reports(summary_.report, std::move(*report));
  last_mode_ = mode;
  last_seed_ = seed;
  return !refuted;
}

JudgeOptions SeedRuns::judge_options(uint64_t seed, RunMode mode) const {
  JudgeOptions judge{
      .mode = options_.check, .tier = mode.tier, .domain = mode.domain, .seed = seed};
  judge.rerun = rerun(seed);
  judge.until = find_value(planned_.program().program(), options_.until);
  (summary_.backward ? judge.derived : judge.recorded) = planned_.loss_roots();
  judge.judges = ranks_.leads();
  judge.team = ranks_.team();
  if (mode.domain == Domain::Field)
    judge.sizes = &planned_.sizes();
  judge.order = options_.backend->order;
  return judge;
}

llvm::Expected<RunReport> SeedRuns::timed_run(const JudgeOptions &options) {
  JudgeOptions judge = options;
  checker::Progress progress(ir::printable("running " + options_.file), options_.shared.quiet);
  auto on_progress = [&](uint64_t done, uint64_t all) { return progress.show(done, all), true; };
  judge.on_progress = on_progress;
  auto begin = std::chrono::steady_clock::now();
  const uint64_t received = ranks_.team() ? ranks_.team()->received() : 0;
  llvm::Expected<RunReport> report =
      run_judged(planned_.program(), planned_.plan(), planned_.world(), *backend_, judge);
  std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  if (options_.shared.timing)
    checker::say(fmt::format("run {:>10.2f} ms, seed {}{}", took.count(), judge.seed,
                             ranks_.team() ? fmt::format(", {} bytes from other ranks",
                                                         ranks_.team()->received() - received)
                                           : ""));
  return report;
}

bool SeedRuns::stop_at(llvm::Error error) {
  if (ranks_.session())
    ranks_.fail(std::move(error));
  if (error.isA<TooManyRounds>())
    return stop_at_loop(std::move(error));
  return reporter_.stop_at_file(ExitCode::Input, std::move(error));
}

bool SeedRuns::stop_at_loop(llvm::Error error) {
  checker::CheckedProgram &program = planned_.program();
  llvm::handleAllErrors(std::move(error), [&](const TooManyRounds &loop) {
    checker::Finding finding{
        rules::RunInput{"the loop",
                        fmt::format("it goes on after {} rounds (`--max-rounds`)", loop.rounds)},
        place_of_inst(program.program(), loop.loop)};
    reporter_.report(program.mutable_program(), std::move(finding));
  });
  return reporter_.stop(ExitCode::Input);
}

// The backend with the inputs, the one of the last run if that can be; false, and said, if it
// cannot run the plan.
bool SeedRuns::prepare(uint64_t seed, RunMode mode) {
  const Plan &plan = planned_.plan();
  if (backend_ && last_mode_.domain == mode.domain && backend_->restart(seed)) {
    if (!planned_.write_inputs(*backend_, plan, seed, mode))
      backend_.reset();
    return backend_ != nullptr;
  }
  backend_.reset(); // its memory is needed
  CpuOptions cpu{.domain = mode.domain, .seed = seed, .threads = options_.threads};
  Session *session = ranks_.session();
  backend_ = planned_.with_inputs(session ? session->backend(cpu) : options_.backend->make(cpu),
                                  plan, seed, mode);
  return backend_ != nullptr;
}

std::string SeedRuns::rerun(uint64_t seed) const {
  std::string line = fmt::format("spmdrun {} {}", options_.file, data_arguments(options_, seed));
  if (const Session *session = ranks_.session())
    line += fmt::format(" --nproc={}", session->size());
  return line;
}

} // namespace spmd::runtime
