// Findings that a program accepts, by its rows of suppressions.
#pragma once

#include "checker/check.h"

namespace spmd::checker {

// Marks findings that the program accepts, and reports suppressions that match nothing or have
// lapsed.
void apply_suppressions(const ir::Program &program, const CheckOptions &options,
                        CheckResult &result);
// Marks one if the program accepts it.
void suppress(const ir::Program &program, const CheckOptions &options, Finding &finding);

} // namespace spmd::checker
