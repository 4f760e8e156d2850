// Derives, plans, draws inputs, runs and judges.
#include "tests/unit/backward_run.h"

#include "runtime/inputs/inputs.h"

#include "checker/backward/backward.h"

#include "tests/unit/checked_programs.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

RunReport run_with_backward(std::string_view text, llvm::function_ref<void(Plan &)> spoil) {
  ir::ReadResult read = ir::read_text({text.data(), text.size()});
  for (const ir::InputError &error : read.errors)
    UNSCOPED_INFO(error.line << ": " << error.message);
  REQUIRE(read.errors.empty());
  std::optional<checker::NoBackward> none = checker::derive_backward(read.program);
  if (none)
    FAIL(none->message);
  std::optional<checker::CheckedProgram> program =
      checker::check_and_lower(std::move(read.program));
  REQUIRE(program);
  llvm::Expected<World> world = World::make(program->program());
  REQUIRE(static_cast<bool>(world));
  llvm::Expected<Plan> plan = make_plan(*program, *world);
  if (!plan)
    FAIL(llvm::toString(plan.takeError()));
  if (spoil)
    spoil(*plan);
  std::unique_ptr<Backend> backend = make_cpu_backend({.domain = Domain::Field});
  auto ok = [](llvm::Error error) {
    if (error)
      FAIL(llvm::toString(std::move(error)));
  };
  ok(backend->prepare(program->mutable_program(), *plan, *world));
  Inputs inputs(*program, *world, InputFiles());
  InputOptions drawing;
  drawing.domain = Domain::Field;
  for (size_t p = 0; p < plan->params.size(); ++p) {
    const PlannedValue &value = plan->values[plan->params[p]];
    for (RankId rank : world->ranks(program->program().types[value.known.type].mesh()))
      ok(backend->write(value.buffer, rank, inputs.on_rank(p, rank, drawing)));
  }
  JudgeOptions options;
  options.mode = CheckMode::Outputs;
  llvm::Expected<RunReport> report = run_judged(*program, *plan, *world, *backend, options);
  if (!report)
    FAIL(llvm::toString(report.takeError()));
  for (const checker::Finding &finding : report->findings)
    UNSCOPED_INFO(finding.info().name << ": " << message_of(program->program(), finding));
  for (const std::string &reason : report->undecided)
    UNSCOPED_INFO("undecided: " << reason);
  return std::move(*report);
}

unsigned upheld_gradients(const RunReport &report) {
  return static_cast<unsigned>(llvm::count_if(report.claims, [](const ClaimVerdict &claim) {
    return claim.gradient && claim.verdict == Verdict::Upheld;
  }));
}

} // namespace spmd::runtime
