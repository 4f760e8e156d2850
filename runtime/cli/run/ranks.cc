// Every rank asks in the same order; what one of them cannot do, none does.
#include "runtime/cli/run/ranks.h"

#include "runtime/cli/failure.h"

#include "rules/violations/commands/runs.h"

#include <fmt/format.h>

namespace spmd::runtime {

using checker::ExitCode;

bool Ranks::open() {
  ExitCode code = ExitCode::Clean;
  session_ = Session::open(options_, code);
  reporter_.set_code(code);
  return session_ || code == ExitCode::Clean;
}

bool Ranks::all(bool goes_on) {
  if (!session_)
    return goes_on;
  llvm::Expected<ExitCode> worst = session_->agree(reporter_.code());
  if (!worst)
    fail(worst.takeError());
  reporter_.set_code(*worst);
  return goes_on && *worst == ExitCode::Clean;
}

uint8_t Ranks::decided(uint8_t own) {
  if (!session_)
    return own;
  llvm::Expected<uint8_t> said = session_->decide(own);
  if (!said)
    fail(said.takeError());
  return *said;
}

void Ranks::fail(llvm::Error error) {
  std::string text = llvm::toString(std::move(error));
  Team &team = session_->team();
  std::optional<TeamFailure> failure = team.failure();
  if (!failure && !session_->leads())
    team.fail(TeamFailure::Form::Error, text);
  checker::capture_output(nullptr);
  std::optional<checker::Finding> finding;
  if (failure && plan_)
    finding = finding_of(*failure, program_->program(), *plan_, options_.timeout, needed_);
  if (finding)
    reporter_.report(program_->mutable_program(), std::move(*finding));
  else if (failure)
    checker::say(fmt::format("{}: rank {}: {}", options_.file, failure->ranks.front(),
                             failure->text.empty() ? "lost before the run" : failure->text));
  else
    checker::say(fmt::format("{}: {}", options_.file, text));
  reporter_.add_code(ExitCode::Input);
  session_->abandon(reporter_.code());
}

bool Ranks::agree_on_plan(const World &world) {
  if (!session_)
    return true;
  llvm::Expected<std::optional<Session::Difference>> found =
      session_->compare({{"the version", std::string(checker::kVersion)},
                         {"the plan", fmt::format("{:016x}", plan_->fingerprint)},
                         {"the backend", std::string(options_.backend->name)},
                         {"the library", session_->library()},
                         {"the device", options_.deterministic ? session_->device() : ""},
                         {"the call", common_arguments(options_)}});
  if (!found)
    fail(found.takeError());
  if (*found)
    return all(
        reporter_.refuse(program_->mutable_program(),
                         rules::RunPlansDiffer{std::to_string((*found)->rank), (*found)->text}));
  if (session_->size() == world.size())
    return true;
  return all(reporter_.stop_at_file(ExitCode::Call,
                                    fmt::format("the program has {} ranks, and {} were started",
                                                world.size(), session_->size())));
}

void Ranks::finish() {
  if (!session_)
    return;
  if (llvm::Error error = session_->finish(reporter_.code()))
    fail(std::move(error));
}

} // namespace spmd::runtime
