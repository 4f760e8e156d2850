// Which exit code wins when several things happened in one run.
#include "checker/cli/exit_code.h"

#include "tests/unit/catch.h"

using namespace spmd::checker;

TEST_CASE("the exit code is the first in the order of precedence") {
  CHECK(worse(ExitCode::Clean, ExitCode::Coverage) == ExitCode::Coverage);
  CHECK(worse(ExitCode::Coverage, ExitCode::Findings) == ExitCode::Findings);
  CHECK(worse(ExitCode::Findings, ExitCode::Input) == ExitCode::Input);
  CHECK(worse(ExitCode::Call, ExitCode::Input) == ExitCode::Call);
  CHECK(worse(ExitCode::Bug, ExitCode::Call) == ExitCode::Bug);
  CHECK(worse(ExitCode::Interrupted, ExitCode::Bug) == ExitCode::Interrupted);
  CHECK(worse(ExitCode::Skipped, ExitCode::Clean) == ExitCode::Skipped);
}
