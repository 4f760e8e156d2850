// Parameters that a step gives a gradient, and whose forward reads something else in their place.
#pragma once

#include "checker/check.h"

namespace spmd::checker {

// Where the forward takes what the step before has made of a parameter, such as weights that were
// gathered ahead, nothing says whether that is what the parameter is now. Clears
// CheckResult::proved of their new values.
void leave_unread_open(const ir::Program &program, CheckResult &result);

} // namespace spmd::checker
