// The `spmdrun` binary.
#include "runtime/cli/run.h"
#include "runtime/launch/file_limit.h"
#include "runtime/launch/rank_codes.h"
#include "runtime/launch/spawn.h"

#include "checker/cli/output.h"
#include "checker/cli/process.h"

#include "llvm/ADT/SmallVector.h"

#include <fmt/format.h>

namespace spmd::runtime {
namespace {

using checker::ExitCode;

ExitCode run(llvm::ArrayRef<llvm::StringRef> words) {
  RunOptions options;
  if (std::string problem = parse_run_call(words, options); !problem.empty()) {
    checker::say(problem);
    return ExitCode::Call;
  }
  if (options.help)
    return checker::print_text(run_help());
  if (options.version)
    return checker::print_text(fmt::format("spmdrun {}\n", checker::kVersion));
  if (options.nproc)
    return static_cast<ExitCode>(spawn_ranks({.count = options.nproc,
                                              .words = words_of_rank(words, options),
                                              .by_mpirun = options.backend->needs_mpirun,
                                              .join_timeout = options.join_timeout,
                                              .skip_unavailable = options.skip_unavailable}));
  return run_program(options);
}

} // namespace
} // namespace spmd::runtime

int main(int argc, char **argv) {
  spmd::checker::prepare_process();
  spmd::checker::set_tool_name("spmdrun");
  llvm::SmallVector<llvm::StringRef, 16> words(argv + 1, argv + argc);
  spmd::runtime::raise_file_limit();
  const int code = static_cast<int>(spmd::runtime::run(words));
  spmd::runtime::report_code(code);
  return code;
}
