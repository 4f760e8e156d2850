// The `spmdrun` binary.
#include "runtime/cli/run/run.h"
#include "runtime/launch/executable.h"
#include "runtime/launch/file_limit.h"
#include "runtime/launch/rank_codes.h"
#include "runtime/launch/spawn.h"
#include "runtime/loops/blas.h"

#include "checker/cli/output.h"
#include "checker/cli/process.h"

#include "llvm/ADT/SmallVector.h"

#include <fmt/format.h>

#include <cstdlib>
#include <unistd.h>

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
                                              .words = rank_arguments(words, options),
                                              .by_mpirun = options.backend->needs_mpirun,
                                              .join_timeout = options.join_timeout,
                                              .skip_unavailable = options.skip_unavailable}));
  return run_program(options);
}

// OpenBLAS chooses its kernels when it is loaded, by a list of processors that newer ones are not
// on: then this process begins once more, with the word for kernels that the processor can run.
void begin_with_right_kernels(char **argv) {
  constexpr const char *kWord = "OPENBLAS_CORETYPE";
  const char *core = std::getenv(kWord) ? nullptr : openblas_core_override();
  if (core && ::setenv(kWord, core, 1) == 0)
    ::execv(executable_path().c_str(), argv); // if it fails, slower ones do
}

} // namespace
} // namespace spmd::runtime

int main(int argc, char **argv) {
  spmd::runtime::begin_with_right_kernels(argv);
  spmd::checker::prepare_process();
  spmd::checker::set_tool_name("spmdrun");
  llvm::SmallVector<llvm::StringRef, 16> words(argv + 1, argv + argc);
  spmd::runtime::raise_file_limit();
  const int code = static_cast<int>(spmd::runtime::run(words));
  spmd::runtime::report_code(code);
  return code;
}
