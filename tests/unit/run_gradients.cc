// Gradients of runs against the derivative of what the program means.
#include "tests/unit/backward_run.h"
#include "tests/unit/catch.h"

using namespace spmd;
using namespace spmd::runtime;

namespace {

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
  unsigned refuted = 0, broken = 0;
  for (std::string_view text : {kGlobal, kLocal})
    for (unsigned at = 0; at < 4; ++at) {
      bool found = false;
      RunReport report = run_with_backward(text, [&](Plan &plan) {
        unsigned seen = 0;
        for (Step &step : plan.steps) {
          if (step.form != StepForm::Communicate || seen++ != at)
            continue;
          const Communicate collective = plan.communicates[step.index];
          if (plan.buffers[collective.operand].dims != plan.buffers[collective.result].dims)
            continue;
          LocalStep copy;
          copy.operands = {static_cast<uint32_t>(plan.uses.size()), 1};
          plan.uses.push_back({collective.operand, {}});
          copy.result = collective.result;
          plan.local_steps.push_back(copy);
          step.form = StepForm::LocalStep;
          step.index = static_cast<uint32_t>(plan.local_steps.size() - 1);
          found = true;
        }
      });
      broken += found;
      refuted += found && report.refuted();
    }
  CHECK(broken >= 2);
  CHECK(refuted == broken);
}
