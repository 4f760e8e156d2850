// `spmdlint validate`: reads programs without checking them.
#include "checker/cli/input.h"
#include "checker/cli/output.h"

#include <fmt/format.h>

namespace spmd::checker {

ExitCode run_validate(const Options &options) {
  if (options.arguments.empty()) {
    say("`validate` takes one file or more");
    return ExitCode::Call;
  }
  ExitCode code = ExitCode::Clean;
  for (const std::string &path : options.arguments) {
    Input input = load(path, options);
    print_stderr(print_input_errors(input));
    if (!input.readable()) {
      code = worse(code, ExitCode::Input);
      continue;
    }
    const ir::Program &program = input.read.program;
    constexpr std::string_view kPacked[] = {"", ", gzip", ", zstd"};
    std::string problem = write_stdout(
        fmt::format("{}: {}{}, {} ops, {} values\n", input.name, ir::format_of(input.bytes()).name,
                    kPacked[static_cast<unsigned>(input.compression)], program.insts.size(),
                    program.values.size()));
    if (!problem.empty()) {
      say(problem);
      code = worse(code, ExitCode::Call);
    }
  }
  return code;
}

} // namespace spmd::checker
