// A plan is made of the steps, then of where their buffers lie.
#include "runtime/plan/plan.h"

#include "runtime/plan/planner/planner.h"

namespace spmd::runtime {

char TooManyRounds::ID = 0;
void TooManyRounds::log(llvm::raw_ostream &out) const {
  out << "a loop goes on after " << rounds << " rounds";
}

llvm::Expected<Plan> make_plan(checker::CheckedProgram &program, const World &world,
                               const PlanOptions &options) {
  Plan plan;
  plan.max_rounds = options.max_rounds;
  rules::Rules rules(program.mutable_program());
  if (llvm::Error error =
          Planner({program, program.mutable_program(), rules, world, options, plan}).run())
    return error;
  plan_memory(program.program(), plan);
  plan.fingerprint = fingerprint(program.program(), plan);
  return plan;
}

} // namespace spmd::runtime
