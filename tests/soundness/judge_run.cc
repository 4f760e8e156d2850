// The program is planned, run on the cpu backend in the field and in real numbers, and judged, as
// the tool does.
#include "tests/soundness/judge_run.h"

#include "checker/report/report.h"
#include "runtime/inputs/inputs.h"
#include "runtime/judge/run/judged_run.h"

#include "ir/input/input.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::soundness {

using namespace runtime;

namespace {

struct Mode {
  Tier tier;
  Domain domain;
};

RunAnswer not_run(llvm::Error error) { return {RunSays::NotRun, llvm::toString(std::move(error))}; }

llvm::Expected<RunReport> report_of(checker::CheckedProgram &program, const World &world,
                                    const Plan &plan, Mode mode, uint64_t seed) {
  std::unique_ptr<Backend> backend = make_cpu_backend({.domain = mode.domain});
  if (llvm::Error failed = backend->prepare(program.mutable_program(), plan, world))
    return llvm::Expected<RunReport>(std::move(failed));
  Inputs inputs(program, world, InputFiles());
  InputOptions drawing{.seed = seed, .domain = mode.domain};
  if (llvm::Error failed = inputs.write_to(*backend, plan, drawing))
    return llvm::Expected<RunReport>(std::move(failed));
  std::vector<LossRoot> roots = recorded_losses(program, LossChoice::Auto);
  JudgeOptions judging{
      .mode = CheckMode::All, .tier = mode.tier, .domain = mode.domain, .seed = seed};
  judging.recorded = roots;
  llvm::Expected<RunReport> report = run_judged(program, plan, world, *backend, judging);
  return report;
}

} // namespace

RunAnswer judge_run(const Draft &draft, llvm::ArrayRef<unsigned> wrong, uint64_t seed) {
  ir::ReadResult read = ir::read_text(draft.print());
  if (!read.errors.empty())
    return {RunSays::NotRun, "it cannot be read"};
  std::optional<checker::CheckedProgram> program =
      checker::check_and_lower(std::move(read.program));
  if (!program)
    return {RunSays::NotRun, "it does not check"};
  llvm::Expected<World> world = World::make(program->program());
  if (!world)
    return not_run(world.takeError());
  llvm::Expected<Plan> plan = make_plan(*program, *world);
  if (!plan)
    return not_run(plan.takeError());
  RunAnswer answer{RunSays::Upheld, {}};
  for (Mode mode : {Mode{Tier::Field, Domain::Field}, Mode{Tier::Real, Domain::Declared}}) {
    llvm::Expected<RunReport> report = report_of(*program, *world, *plan, mode, seed);
    if (!report)
      return not_run(report.takeError());
    if (report->refuted())
      return {RunSays::Refuted,
              report->findings.empty()
                  ? std::string()
                  : std::string(report->findings.front().info().name) + ": " +
                        checker::message_of(program->program(), report->findings.front())};
    for (const GradientReport::NotCompared &left : report->gradients.left) {
      std::string name = ir::print_value(program->program(), left.value);
      if (llvm::any_of(wrong, [&](unsigned each) { return name == "%" + std::to_string(each); }))
        answer = {RunSays::Left, left.why};
    }
  }
  return answer;
}

} // namespace spmd::soundness
