// What collectives of two processes cost: by a plan, and by a loop in C of blocking calls of MPI on
// arrays of the same element type, in turn. Sums are in the order of the ranks on both sides; what
// the MPI library's own sum takes is printed besides.
#include "runtime/cli/session.h"
#include "runtime/launch/rank_codes.h"
#include "runtime/launch/spawn.h"
#include "runtime/tensor/wide_loops.h"

#include "ir/input/input.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>

namespace {

using namespace spmd;
using namespace spmd::runtime;

constexpr int kRounds = 24, kWarm = 3;

[[noreturn]] void give_up(const std::string &text) {
  fmt::print(stderr, "{}\n", text);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::exit(1);
}

void must(llvm::Error error) {
  if (error)
    give_up(llvm::toString(std::move(error)));
}

// --- by hand

using BF16 = uint16_t;

float float_of(BF16 bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
BF16 bf16_of(float value) {
  auto bits = std::bit_cast<uint32_t>(value);
  uint32_t nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return static_cast<BF16>(value == value ? nearest : bits >> 16 | 0x40);
}

SPMD_WIDE_LOOP void add(const double *a, const double *b, double *to, size_t n) {
  for (size_t i = 0; i < n; ++i)
    to[i] = a[i] + b[i];
}
SPMD_WIDE_LOOP void add(const float *a, const float *b, float *to, size_t n) {
  for (size_t i = 0; i < n; ++i)
    to[i] = a[i] + b[i];
}
SPMD_WIDE_LOOP void add(const BF16 *a, const BF16 *b, BF16 *to, size_t n) {
  for (size_t i = 0; i < n; ++i)
    to[i] = bf16_of(float_of(a[i]) + float_of(b[i]));
}

void set(double &cell, double value) { cell = value; }
void set(float &cell, double value) { cell = static_cast<float>(value); }
void set(BF16 &cell, double value) { cell = bf16_of(static_cast<float>(value)); }
double get(double cell) { return cell; }
double get(float cell) { return cell; }
double get(BF16 cell) { return float_of(cell); }

// The collectives of one element type; `own` and `into` as long as the collective asks for.
template <class T> struct ByHand {
  std::vector<T> own, theirs, into;
  int rank = 0;

  void swap(const T *from, size_t n) {
    auto bytes = static_cast<int>(n * sizeof(T));
    MPI_Sendrecv(from, bytes, MPI_BYTE, 1 - rank, 0, theirs.data(), bytes, MPI_BYTE, 1 - rank, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  // Rank 0 comes first.
  void sum(const T *mine, size_t n) {
    add(rank == 0 ? mine : theirs.data(), rank == 0 ? theirs.data() : mine, into.data(), n);
  }
  void all_reduce() {
    swap(own.data(), own.size());
    sum(own.data(), own.size());
  }
  void reduce_scatter() {
    const size_t half = own.size() / 2, mine = rank == 0 ? 0 : half;
    swap(own.data() + (half - mine), half);
    sum(own.data() + mine, half);
  }
  void all_gather() {
    auto bytes = static_cast<int>(own.size() * sizeof(T));
    MPI_Allgather(own.data(), bytes, MPI_BYTE, into.data(), bytes, MPI_BYTE, MPI_COMM_WORLD);
  }
  void all_to_all() {
    auto bytes = static_cast<int>(own.size() / 2 * sizeof(T));
    MPI_Alltoall(own.data(), bytes, MPI_BYTE, into.data(), bytes, MPI_BYTE, MPI_COMM_WORLD);
  }
};

// --- by a plan

template <class T> struct Row {
  std::string_view name;
  std::string_view operand, kinds; // of the statement
  void (ByHand<T>::*by_hand)();
  size_t results; // elements for two of the operand
  bool sums;
};

// `count` collectives of one operand of that many elements.
template <class T>
std::string statements(const Row<T> &row, std::string_view dtype, size_t elements, unsigned count) {
  std::string text =
      fmt::format("trace {{ mode = local }}\nmesh m {{ tp = 2 }}\n%x = input {}[2, {}] {}\n", dtype,
                  elements / 2, row.operand);
  for (unsigned i = 0; i < count; ++i)
    text += fmt::format("%y{} = {} %x {{ axis = tp, {} }}\n", i, row.name, row.kinds);
  return text + fmt::format("output %y{}\noutput %x\n", count - 1);
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

// A plan that is ready to run.
struct Ready {
  std::unique_ptr<checker::CheckedProgram> program;
  std::unique_ptr<World> world;
  std::unique_ptr<Plan> plan;
  std::unique_ptr<Backend> backend;
};
Ready ready(Session &session, const std::string &text) {
  Ready made;
  std::optional<checker::CheckedProgram> program =
      checker::check_and_lower(std::move(ir::read_program(text).program));
  if (!program)
    give_up("a finding in\n" + text);
  made.program = std::make_unique<checker::CheckedProgram>(std::move(*program));
  llvm::Expected<World> world = World::make(made.program->program());
  if (!world)
    give_up(llvm::toString(world.takeError()));
  made.world = std::make_unique<World>(std::move(*world));
  llvm::Expected<Plan> plan = make_plan(*made.program, *made.world);
  if (!plan)
    give_up(llvm::toString(plan.takeError()));
  made.plan = std::make_unique<Plan>(std::move(*plan));
  made.backend = session.backend({});
  must(made.backend->prepare(made.program->mutable_program(), *made.plan, *made.world));
  return made;
}

// Rank 0 has made the same numbers on both sides.
template <class T>
void compare(const Session &session, const Ready &made, const ByHand<T> &hand, size_t results) {
  Tensor got;
  must(made.backend->read(made.plan->values[made.plan->outputs[0]].buffer, 0, got));
  if (!session.leads())
    return;
  const std::vector<double> &cells = got.of<double>();
  if (cells.size() != results)
    give_up(fmt::format("{} elements instead of {}", cells.size(), results));
  for (size_t i = 0; i < results; ++i)
    if (cells[i] != get(hand.into[i]))
      give_up(fmt::format("element {}: {} instead of {}", i, cells[i], get(hand.into[i])));
}

template <class T>
void bench(Session &session, const Row<T> &row, ir::DType dtype, size_t bytes, unsigned count) {
  const size_t elements = bytes / sizeof(T);
  Ready made = ready(session, statements(row, ir::info(dtype).word, elements, count));
  const BufferId operand = made.plan->values[made.plan->params[0]].buffer;
  Tensor data =
      Tensor::make(dtype, made.plan->buffers[operand].on(session.rank()), Domain::Declared);
  ByHand<T> hand;
  hand.rank = static_cast<int>(session.rank());
  hand.own.resize(elements), hand.theirs.resize(elements);
  const size_t results = elements / 2 * row.results;
  hand.into.resize(results);
  for (size_t i = 0; i < elements; ++i) {
    set(hand.own[i], std::sin(static_cast<double>(i + elements * session.rank())));
    data.of<double>()[i] = get(hand.own[i]);
  }
  std::vector<double> first, by_plan, by_hand, by_library;
  MPI_Datatype library = std::is_same_v<T, double> ? MPI_DOUBLE : MPI_FLOAT;
  const bool has_library = row.sums && results == elements && !std::is_same_v<T, BF16>;
  for (int round = 0; round < kRounds; ++round) {
    must(made.backend->write(operand, session.rank(), data));
    // What has just been computed is packed by the first run; the others find it so.
    for (std::vector<double> *times : {&first, &by_plan})
      times->push_back(
          microseconds([&] { must(made.backend->run(made.plan->all(), kNoDeadline)); }));
    by_hand.push_back(microseconds([&] {
      for (unsigned i = 0; i < count; ++i)
        (hand.*row.by_hand)();
    }));
    if (has_library)
      by_library.push_back(microseconds([&] {
        for (unsigned i = 0; i < count; ++i)
          MPI_Allreduce(hand.own.data(), hand.theirs.data(), static_cast<int>(elements), library,
                        MPI_SUM, MPI_COMM_WORLD);
      }));
  }
  (hand.*row.by_hand)();
  if (bytes <= 1 << 20)
    compare(session, made, hand, results);
  Spread plan_time = spread_of(by_plan), hand_time = spread_of(by_hand);
  if (!session.leads())
    return;
  fmt::print("{:<14} {:<4} {:>9} bytes: plan {:>9.2f} us, by hand {:>9.2f}, ratio {:.3f} (of the "
             "best rounds {:.3f}); the first run {:.2f} more",
             row.name, ir::info(dtype).word, bytes, plan_time.median / count,
             hand_time.median / count, plan_time.median / hand_time.median,
             plan_time.low / hand_time.low,
             std::max(spread_of(first).median - plan_time.median, 0.0));
  if (has_library)
    fmt::print("; MPI_Allreduce {:.2f}", spread_of(by_library).median / count);
  fmt::print("\n");
  std::fflush(stdout);
}

template <class T> void bench_type(Session &session, ir::DType dtype) {
  using By = ByHand<T>;
  const Row<T> rows[] = {
      {"all_reduce", "P", "src = P, dst = R", &By::all_reduce, 2, true},
      {"reduce_scatter", "P", "src = P, dst = V", &By::reduce_scatter, 1, true},
      {"all_gather", "V", "src = V, dst = R", &By::all_gather, 4, false},
      {"all_to_all", "V", "src = V, dst = V", &By::all_to_all, 2, false},
  };
  for (const Row<T> &row : rows) {
    bench(session, row, dtype, 64, 500);
    bench(session, row, dtype, 8 << 10, 200);
    bench(session, row, dtype, 1 << 20, 30);
    bench(session, row, dtype, 64 << 20, 1);
  }
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
  bench_type<double>(*session, ir::DType::F64);
  bench_type<float>(*session, ir::DType::F32);
  bench_type<BF16>(*session, ir::DType::BF16);
  must(session->finish(checker::ExitCode::Clean));
  report_code(static_cast<int>(checker::ExitCode::Clean));
}
