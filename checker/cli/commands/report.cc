// `spmdlint report FILE -o OUT.html`: what `check` finds, as a page. Findings do not fail it.
#include "checker/cli/options.h"
#include "checker/cli/output.h"

namespace spmd::checker {

ExitCode run_report(const Options &given) {
  if (given.arguments.empty())
    return wrong_call("no input is named; `spmdlint report FILE -o OUT.html` writes a page");
  Options options = given;
  options.formats = {{"html", given.output_file == "-" ? "" : given.output_file}};
  options.exit_zero = true;
  options.quiet = options.formats.front().file.empty();
  return run_check(options);
}

} // namespace spmd::checker
