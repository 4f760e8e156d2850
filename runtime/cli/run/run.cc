// The steps of a call in order; each says whether to go on.
#include "runtime/cli/run/run.h"

#include "runtime/cli/run/program_reader.h"
#include "runtime/cli/run/results.h"

#include <fmt/format.h>

namespace spmd::runtime {

using checker::ExitCode;

namespace {

class RunCall {
public:
  explicit RunCall(const RunOptions &options)
      : options_(options), reporter_(options, read_),
        ranks_(options, reporter_), summary_{.program = options.file} {}

  ExitCode run() {
    if (!options_.plan && !ranks_.open()) // a plan needs no other ranks
      return reporter_.code();
    perform();
    ranks_.finish();
    return reporter_.code();
  }

private:
  void perform() {
    ProgramReader reader(options_, read_, reporter_);
    program_ = reader.load();
    summary_.backward = reader.has_derived_backward();
    if (program_)
      planned_.emplace(options_, *program_, reporter_, ranks_);
    const bool ready = planned_ && planned_->make();
    if (options_.plan && ready)
      reporter_.print(runtime::print(program_->program(), planned_->plan()));
    if (!ranks_.all(ready && !options_.plan) || !ranks_.agree_on_plan(planned_->world()) ||
        !ranks_.all(planned_->fits() && finds_until()))
      return;
    // What it runs on ends before the ranks part.
    SeedRuns runs(options_, *planned_, reporter_, ranks_, summary_);
    for (unsigned i = 0; i < options_.seeds && reporter_.is_clean(); ++i)
      runs.run(options_.seed + i);
    summarise_plan();
    Results(options_, *planned_, runs, reporter_, ranks_, summary_).write();
    ranks_.all(true);
  }

  // The value that `--until` names.
  bool finds_until() {
    if (options_.until.empty() || find_value(program_->program(), options_.until).valid())
      return true;
    return reporter_.stop(ExitCode::Call,
                          fmt::format("the program has no value `{}`", options_.until));
  }

  void summarise_plan() {
    summary_.ranks = planned_->world().size();
    for (const LossRoot &root : planned_->loss_roots())
      if (std::string text = runtime::print(program_->program(), root); !text.empty())
        summary_.losses.push_back(std::move(text));
    summary_.steps = planned_->plan().steps.size();
    summary_.peak_bytes = planned_->peak_bytes();
  }

  const RunOptions &options_;
  ReadProgram read_;
  Reporter reporter_;
  Ranks ranks_;
  std::optional<checker::CheckedProgram> program_;
  std::optional<PlannedProgram> planned_;
  Summary summary_;
};

} // namespace

checker::ExitCode run_program(const RunOptions &options) { return RunCall(options).run(); }

} // namespace spmd::runtime
