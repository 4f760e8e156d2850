// The exit codes of the tools, and which of several wins when more than one occurred in a run.
#pragma once

#include <cstdint>
#include <string_view>

namespace spmd::checker {

enum class ExitCode : uint8_t {
  Clean = 0,
  Findings = 1,
  Call = 2,
  Input = 3,
  Coverage = 4,
  Launcher = 5,
  Bug = 70,
  Skipped = 77,
  Interrupted = 130
};

struct ExitCodeInfo {
  ExitCode code;
  std::string_view meaning, reaction;
};
// The first of these that occurred is the result of a run.
inline constexpr ExitCodeInfo kExitCodes[] = {
    {ExitCode::Interrupted, "interrupted; what `check` has found in earlier inputs is reported",
     "run it again"},
    {ExitCode::Bug, "internal error; stderr names the place in our sources", "report a bug"},
    {ExitCode::Call, "wrong option or command, or an output file that cannot be written",
     "fix the call"},
    {ExitCode::Input,
     "an input cannot be read: missing, malformed, truncated, of a newer major version, or a "
     "folder without programs; the others were checked",
     "fix the exporter"},
    {ExitCode::Launcher,
     "only spmdrun --nproc: mpirun failed or was told to stop, and nothing is known of the program",
     "see what mpirun says"},
    {ExitCode::Findings, "findings at or above --fail-on", "fix the program"},
    {ExitCode::Coverage, "nothing was judged, or less than --min-coverage or --min-proof ask for",
     "look at what was recorded; add a rule for the op, or lower the bar"},
    {ExitCode::Skipped, "only spmdrun --skip-unavailable: a backend or device is absent",
     "a skipped test"},
    {ExitCode::Clean, "no finding at or above --fail-on", "none"},
};

constexpr ExitCode worse(ExitCode a, ExitCode b) {
  for (const ExitCodeInfo &row : kExitCodes)
    if (row.code == a || row.code == b)
      return row.code;
  return a;
}

} // namespace spmd::checker
