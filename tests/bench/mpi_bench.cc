// What a plan costs besides its messages: sums over two processes, one after another, by a plan and
// by a loop of the same calls written by hand, in turn. Sums are in the order of the ranks on both
// sides; what the MPI library's own sum takes is printed besides.
#include "runtime/cli/session.h"
#include "runtime/launch/spawn.h"

#include "ir/input/input.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>

namespace {

using namespace spmd;
using namespace spmd::runtime;

constexpr int kRounds = 25, kWarm = 3;

[[noreturn]] void give_up(const std::string &text) {
  fmt::print(stderr, "{}\n", text);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::exit(1);
}

void must(llvm::Error error) {
  if (error)
    give_up(llvm::toString(std::move(error)));
}

std::string sums(unsigned count, int64_t elements) {
  std::string text = fmt::format("mesh m {{ tp = 2 }}\n%x = input f64[{}] P\n", elements);
  for (unsigned i = 0; i < count; ++i)
    text += fmt::format("%y{} = all_reduce %x {{ axis = tp, src = P, dst = R }}\n", i);
  return text + fmt::format("output %y{}\n", count - 1);
}

// One of them by hand.
void sum_by_hand(const std::vector<double> &own, std::vector<double> &theirs,
                 std::vector<double> &sum) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  auto count = static_cast<int>(own.size());
  MPI_Sendrecv(own.data(), count, MPI_DOUBLE, 1 - rank, 0, theirs.data(), count, MPI_DOUBLE,
               1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  const double *first = rank == 0 ? own.data() : theirs.data();
  const double *second = rank == 0 ? theirs.data() : own.data();
  for (size_t i = 0; i < own.size(); ++i)
    sum[i] = first[i] + second[i];
}

struct Spread {
  double low, median;
};
Spread spread_of(std::vector<double> times) {
  times.erase(times.begin(), times.begin() + kWarm);
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

double microseconds(const std::function<void()> &f) {
  MPI_Barrier(MPI_COMM_WORLD);
  double begin = MPI_Wtime();
  f();
  return (MPI_Wtime() - begin) * 1e6;
}

void bench(Session &session, int64_t bytes, unsigned count) {
  const int64_t elements = bytes / static_cast<int64_t>(sizeof(double));
  std::optional<checker::CheckedProgram> program =
      checker::verify_types(std::move(ir::read_program(sums(count, elements)).program));
  if (!program)
    give_up("the program draws a finding");
  llvm::Expected<World> world = World::make(program->program());
  if (!world)
    give_up(llvm::toString(world.takeError()));
  llvm::Expected<Plan> plan = make_plan(*program, *world);
  if (!plan)
    give_up(llvm::toString(plan.takeError()));
  std::unique_ptr<Backend> backend = session.backend({});
  must(backend->prepare(program->tables(), *plan, *world));
  Tensor data = Tensor::make(ir::DType::F64, {elements}, Domain::Declared);
  for (size_t i = 0; i < data.of<double>().size(); ++i)
    data.of<double>()[i] = std::sin(static_cast<double>(i));

  std::vector<double> by_plan, by_hand, by_library;
  const std::vector<double> &own = data.of<double>();
  std::vector<double> theirs(own.size()), sum(own.size());
  for (int round = 0; round < kRounds; ++round) {
    must(backend->write(plan->values[plan->params[0]].buffer, session.rank(), data));
    by_plan.push_back(microseconds([&] { must(backend->run(plan->all(), kNoDeadline)); }));
    by_hand.push_back(microseconds([&] {
      for (unsigned i = 0; i < count; ++i)
        sum_by_hand(own, theirs, sum);
    }));
    by_library.push_back(microseconds([&] {
      for (unsigned i = 0; i < count; ++i)
        MPI_Allreduce(own.data(), sum.data(), static_cast<int>(own.size()), MPI_DOUBLE, MPI_SUM,
                      MPI_COMM_WORLD);
    }));
  }
  Spread plan_time = spread_of(by_plan), hand = spread_of(by_hand), library = spread_of(by_library);
  if (session.leads())
    fmt::print(
        "{:>9} bytes: plan {:>8.2f} us per sum, by hand {:>8.2f}, ratio {:.3f} (of the best rounds "
        "{:.3f}); MPI_Allreduce {:>8.2f}\n",
        bytes, plan_time.median / count, hand.median / count, plan_time.median / hand.median,
        plan_time.low / hand.low, library.median / count);
}

} // namespace

int main(int argc, char **) {
  ::setenv("SPMD_PLUGIN_DIR", BUILT_PLUGINS, 1);
  if (argc == 1)
    return spawn_ranks({.count = 2, .words = {"rank"}, .by_mpirun = true});
  RunOptions options;
  options.backend = &kProcessBackend;
  checker::ExitCode code = checker::ExitCode::Clean;
  std::unique_ptr<Session> session = Session::open(options, code);
  if (!session)
    return static_cast<int>(code);
  bench(*session, 64, 500);
  bench(*session, 8 << 10, 200);
  bench(*session, 64 << 10, 100);
  bench(*session, 1 << 20, 30);
  bench(*session, 8 << 20, 10);
  must(session->finish(checker::ExitCode::Clean));
}
