// The other ranks of a call, if they are processes: all go on together or end together.
#pragma once

#include "runtime/cli/run/reporter.h"
#include "runtime/cli/session.h"

#include "checker/checked_program.h"

namespace spmd::runtime {

class Ranks {
public:
  Ranks(const RunOptions &options, Reporter &reporter) : options_(options), reporter_(reporter) {}

  // False: the ranks cannot meet, which was said.
  bool open();
  // Null: the run is this process alone.
  Session *session() const { return session_.get(); }
  Team *team() const { return session_ ? &session_->team() : nullptr; }
  bool leads() const { return !session_ || session_->leads(); }

  // What a finding about a rank that is lost needs: which step it was in, and how much memory the
  // run takes.
  void set_plan(checker::CheckedProgram &program, const Plan &plan) {
    program_ = &program;
    plan_ = &plan;
  }
  void set_needed_memory(std::string needed) { needed_ = std::move(needed); }

  // The worst exit code of all becomes that of each. False where some rank cannot go on.
  bool all(bool goes_on);
  // What rank 0 says, for all.
  uint8_t decided(uint8_t own);
  // Whether all are to run the same plan, and are as many as it has ranks.
  bool agree_on_plan(const World &world);
  // The run ends here, for all ranks.
  [[noreturn]] void fail(llvm::Error error);
  // All leave with the exit code of the call.
  void finish();

private:
  const RunOptions &options_;
  Reporter &reporter_;
  std::unique_ptr<Session> session_;
  checker::CheckedProgram *program_ = nullptr;
  const Plan *plan_ = nullptr;
  std::string needed_; // memory
};

} // namespace spmd::runtime
