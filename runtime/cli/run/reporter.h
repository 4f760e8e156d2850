// What one call says, and its exit code so far: findings, notes, and the reasons to stop.
#pragma once

#include "runtime/cli/options.h"

#include "checker/check.h"
#include "checker/cli/exit_code.h"
#include "checker/cli/input.h"
#include "checker/cli/output.h"
#include "checker/cli/report_output.h"

namespace spmd::runtime {

// The program of the call as it was read, and what the check found.
struct ReadProgram {
  checker::Input input;
  checker::CheckOptions check_options;
  checker::CheckResult result;
};

// Where a finding is: at no line.
inline constexpr checker::Place kWholeFile{checker::Place::Form::File, ~0u};
// What was derived stands nowhere; what it was derived from does.
checker::Place place_of_inst(const ir::Program &program, ir::InstId inst);

class Reporter {
public:
  Reporter(const RunOptions &options, ReadProgram &read)
      : options_(options), read_(read), sources_(options.shared.sources) {}

  checker::ExitCode code() const { return code_; }
  void set_code(checker::ExitCode code) { code_ = code; }
  bool is_clean() const { return code_ == checker::ExitCode::Clean; }
  // The worse of the code so far and this one.
  void add_code(checker::ExitCode code) { code_ = checker::worse(code_, code); }
  // False: not to go on.
  bool stop(checker::ExitCode code) {
    add_code(code);
    return false;
  }
  // The same, with a reason, or with one that concerns the file.
  bool stop(checker::ExitCode code, const std::string &reason);
  bool stop_at_file(checker::ExitCode code, const std::string &reason);
  bool stop_at_file(checker::ExitCode code, llvm::Error error);
  // A finding that keeps the run from beginning.
  bool refuse(ir::Program &program, rules::Violation violation, checker::Place place = kWholeFile);

  // Findings of the check, or those of the run in their place.
  void report(ir::Program &program, std::optional<std::vector<checker::Finding>> findings);
  void report(ir::Program &program, checker::Finding finding);
  // Unless the call is quiet.
  void note(const std::string &text);
  // On stdout.
  void print(const std::string &text);

private:
  const RunOptions &options_;
  ReadProgram &read_;
  checker::SourceCache sources_;
  checker::ExitCode code_ = checker::ExitCode::Clean;
};

} // namespace spmd::runtime
