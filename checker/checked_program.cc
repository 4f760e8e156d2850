// The only way to a CheckedProgram.
#include "checker/checked_program.h"

namespace spmd::checker {

std::optional<CheckedProgram> verify_types(ir::Program program, const CheckOptions &options) {
  CheckResult result = check(program, options);
  if (!result.clean())
    return std::nullopt;
  return CheckedProgram(std::move(program), std::move(result));
}

} // namespace spmd::checker
