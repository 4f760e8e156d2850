// The only way to a CheckedProgram.
#include "checker/checked_program.h"

#include "checker/rewrite/casts.h"
#include "checker/rewrite/redistribute.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

std::optional<CheckedProgram> check_and_lower(ir::Program program, const CheckOptions &options) {
  CheckResult result = check(program, options);
  if (!result.clean())
    return std::nullopt;
  if (write_casts(program, options))
    result = check(program, options);
  // Whoever runs the program knows transitions alone.
  if (expand_redistributes(program, options))
    result = check(program, options);
  SPMD_CHECK(result.clean(), "the steps of a plan do not check");
  return CheckedProgram(std::move(program), std::move(result));
}

rules::TensorInfo CheckedProgram::known(ir::ValueId value, uint32_t typing) const {
  if (typing == kMain)
    return {type(value), shape(value), sizes(value)};
  const BodyInstance &body = result_.body_instances[typing];
  SPMD_CHECK(value.index - body.first < body.values.size(), "a value of another body");
  return body.values[value.index - body.first];
}

llvm::ArrayRef<uint32_t> CheckedProgram::bodies(ir::InstId site, uint32_t typing) const {
  llvm::ArrayRef<BodyInstance::Site> sites = result_.body_instances[typing].sites;
  const BodyInstance::Site *found = llvm::partition_point(
      sites, [&](const BodyInstance::Site &each) { return each.inst < site; });
  if (found != sites.end() && found->inst == site)
    return found->bodies;
  return {};
}

} // namespace spmd::checker
