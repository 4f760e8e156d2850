// One call of `spmdrun`: reads and checks a program, plans it, runs it with each seed in each tier,
// and says which claims the data upheld.
#pragma once

#include "runtime/cli/options.h"

#include "checker/cli/exit_code.h"

namespace spmd::runtime {

checker::ExitCode run_program(const RunOptions &options);

} // namespace spmd::runtime
