// What a step costs besides its work: a chain of ops and collectives on tensors of four elements,
// planned, then run on the null and on the cpu backend.
#include "runtime/backends/backend.h"

#include "ir/input/input.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <functional>

namespace {

using namespace spmd;
using namespace spmd::runtime;

constexpr unsigned kLinks = 500;
constexpr int kRuns = 11;

std::string chain(unsigned ranks) {
  std::string text = fmt::format("mesh m {{ tp = {} }}\n%0 = input f32[4] P\n", ranks);
  for (unsigned i = 0; i < kLinks; ++i)
    text += fmt::format("%a{0} = all_reduce %{0} {{ axis = tp, src = P, dst = R }}\n"
                        "%{1} = convert %a{0} {{ axis = tp, src = R, dst = P }}\n",
                        i, i + 1);
  return text + fmt::format("output %a{}\n", kLinks - 1);
}

double nanoseconds(const std::function<void()> &f) {
  auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
}

[[noreturn]] void give_up(llvm::Error error) {
  fmt::print(stderr, "{}\n", llvm::toString(std::move(error)));
  std::exit(1);
}

void must(llvm::Error error) {
  if (error)
    give_up(std::move(error));
}

// The median of several runs, per step.
double measure(Backend &backend, checker::CheckedProgram &program, const Plan &plan,
               const World &world) {
  must(backend.prepare(program.mutable_program(), plan, world));
  const BufferId input = plan.values[plan.params[0]].buffer;
  const Tensor data = Tensor::make(ir::DType::F32, {4}, Domain::Declared);
  std::vector<double> times;
  for (int i = 0; i < kRuns; ++i) {
    for (RankId rank = 0; rank < world.size(); ++rank)
      must(backend.write(input, rank, data));
    times.push_back(nanoseconds([&] { must(backend.run(plan.all(), kNoDeadline)); }));
  }
  std::sort(times.begin(), times.end());
  return times[kRuns / 2] / static_cast<double>(plan.steps.size());
}

void bench(unsigned ranks) {
  std::optional<checker::CheckedProgram> program =
      checker::check_and_lower(std::move(ir::read_program(chain(ranks)).program));
  if (!program) {
    fmt::print(stderr, "the chain has a finding\n");
    std::exit(1);
  }
  llvm::Expected<World> world = World::make(program->program());
  if (!world)
    give_up(world.takeError());
  std::optional<Plan> plan;
  double planning = nanoseconds([&] {
    llvm::Expected<Plan> made = make_plan(*program, *world);
    if (!made)
      give_up(made.takeError());
    plan = std::move(*made);
  });
  double nothing = measure(*make_null_backend(), *program, *plan, *world);
  double work = measure(*make_cpu_backend(), *program, *plan, *world);
  fmt::print(
      "{:>4} ranks, {} steps: {:.2f} us per step to plan, {:.3f} us on null, {:.2f} us on cpu, "
      "{:.2f} us per rank\n",
      ranks, plan->steps.size(), planning / 1e3 / static_cast<double>(plan->steps.size()),
      nothing / 1e3, work / 1e3, work / 1e3 / ranks);
}

} // namespace

int main() {
  for (unsigned ranks : {2u, 8u, 64u})
    bench(ranks);
}
