// A program is checked as its mode says: by one walk, or by two where it declares no types.
#include "checker/check.h"

#include "checker/gradual/gradual.h"
#include "checker/walk/suppress.h"
#include "checker/walk/walk.h"

namespace spmd::checker {

bool CheckResult::clean() const {
  for (const Finding &finding : findings)
    if (finding.severity() == rules::Severity::Error)
      return false;
  return true;
}

CheckResult check(ir::Program &program, const CheckOptions &options) {
  if (options.mode.value_or(program.mode) == ir::Mode::Gradual)
    return check_gradually(program, options);
  if (options.mode)
    program.mode = *options.mode;
  CheckResult result;
  Walk(program, options, result).run();
  apply_suppressions(program, options, result);
  return result;
}

} // namespace spmd::checker
