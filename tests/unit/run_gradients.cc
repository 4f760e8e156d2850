// Gradients of runs against the derivative of what the program means.
#include "runtime/inputs.h"
#include "runtime/judged_run.h"

#include "checker/backward.h"

#include "tests/unit/checked_programs.h"

#include "llvm/ADT/STLExtras.h"

using namespace spmd;
using namespace spmd::runtime;

namespace {

// A program with its backward, run in the field and judged; `spoil` changes the plan.
RunReport run_with_backward(std::string_view text,
                            llvm::function_ref<void(Plan &)> spoil = nullptr) {
  ir::ReadResult read = ir::read_text({text.data(), text.size()});
  REQUIRE(read.errors.empty());
  std::optional<checker::NoBackward> none = checker::derive_backward(read.program);
  if (none)
    FAIL(none->message);
  std::optional<checker::CheckedProgram> program = checker::verify_types(std::move(read.program));
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
  ok(backend->prepare(program->tables(), *plan, *world));
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

constexpr std::string_view kGlobal = R"(mesh m { dp = 2, tp = 2 }
%x = input f32[4@dp, 8] R@tp { requires_grad = false }
%w = param f32[8, 4@tp] R@dp
%v = param f32[4@tp, 6] R@dp
%b = param f32[6] R@dp I@tp
%h = matmul %x, %w
%a = gelu %h
%p = matmul %a, %v { partial = tp }
%y = all_reduce %p { axis = tp, src = P, dst = I }
%z = add %y, %b
%s = square %z
%l = sum %s { partial = dp }
output loss %l: P@dp I@tp
)";

constexpr std::string_view kLocal = R"(trace { mode = local }
mesh m { tp = 2 }
%x = input f32[4, 8] I
%w = param f32[8, 4] V
%v = param f32[4, 6] V
%c = convert %x { axis = tp, src = I, dst = R }
%h = matmul %c, %w
%a = gelu %h
%p = matmul %a, %v { partial = tp }
%y = all_reduce %p { axis = tp, src = P, dst = I }
%s = square %y
%l = sum %s
output loss %l: I
)";

} // namespace

TEST_CASE("gradients: a run with its backward upholds R and I in full") {
  for (std::string_view text : {kGlobal, kLocal}) {
    RunReport report = run_with_backward(text);
    CHECK_FALSE(report.refuted());
    CHECK(upheld_gradients(report) >= 2);
  }
}

TEST_CASE("gradients: a sum over ranks that is missing backward is refuted") {
  unsigned refuted = 0, spoilt = 0;
  for (std::string_view text : {kGlobal, kLocal})
    for (unsigned at = 0; at < 4; ++at) {
      bool found = false;
      RunReport report = run_with_backward(text, [&](Plan &plan) {
        unsigned seen = 0;
        for (Step &step : plan.steps) {
          if (step.form != StepForm::Communicate || seen++ != at)
            continue;
          const Communicate wire = plan.communicates[step.index];
          if (plan.buffers[wire.operand].dims != plan.buffers[wire.result].dims)
            continue;
          Act copy;
          copy.operands = {static_cast<uint32_t>(plan.uses.size()), 1};
          plan.uses.push_back({wire.operand, {}});
          copy.result = wire.result;
          plan.acts.push_back(copy);
          step.form = StepForm::Act;
          step.index = static_cast<uint32_t>(plan.acts.size() - 1);
          found = true;
        }
      });
      spoilt += found;
      refuted += found && report.refuted();
    }
  CHECK(spoilt >= 2);
  CHECK(refuted == spoilt);
}
