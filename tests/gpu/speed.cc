// How fast a device carries out what `spmdrun` asks for most: printed beside a copy of the same
// bytes, which is what memory allows. Measures, and fails only where a command is refused.
#include "tests/gpu/opened_device.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace spmd::gpu_test {
namespace {

constexpr int64_t kRows = 16384, kColumns = 4096; // 256 MiB of f32
constexpr int kRounds = 5;

struct Arrays {
  SpmdAddress in[3], out;
};

class Speed {
public:
  explicit Speed(OpenedDevice &on) : on_(on) {
    for (SpmdAddress *place : {&arrays_.in[0], &arrays_.in[1], &arrays_.in[2], &arrays_.out}) {
      on.expect_fine(on.calls().allocate(on.device(), kRows * kColumns * sizeof(float), place),
                     "allocate");
      clear(*place);
    }
  }

  const Arrays &arrays() const { return arrays_; }

  // Prints the least time of some rounds, the share of it in which the host queues, and the rate
  // that `bytes` read and written make.
  template <class Queue> void measure(const char *name, int64_t bytes, Queue queue) {
    const Times times = least_times(queue);
    const double seconds = times.all;
    const double rate = static_cast<double>(bytes) / seconds / 1e9;
    if (copy_rate_ == 0)
      copy_rate_ = rate;
    std::printf("%-40s %9.1f us, queued in %5.1f us %7.0f GB/s  %.2f of a copy\n", name,
                seconds * 1e6, times.queued * 1e6, rate, rate / copy_rate_);
  }
  template <class Queue> void measure_product(const char *name, double operations, Queue queue) {
    const Times times = least_times(queue);
    std::printf("%-40s %9.1f us, queued in %5.1f us %7.0f TFLOP/s\n", name, times.all * 1e6,
                times.queued * 1e6, operations / times.all / 1e12);
  }

  OpenedDevice &on() { return on_; }

private:
  void clear(SpmdAddress place) {
    const std::vector<char> zeros(size_t(1) << 22);
    for (int64_t at = 0; at < kRows * kColumns * 4; at += static_cast<int64_t>(zeros.size()))
      on_.expect_fine(on_.calls().put(on_.device(), place + static_cast<uint64_t>(at), zeros.data(),
                                      zeros.size()),
                      "put");
  }

  struct Times { // of a call, in seconds
    double queued = 0, all = 0;
  };
  template <class Queue> Times times_of(int calls, Queue queue) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < calls; ++i)
      on_.expect_fine(queue(), "queue");
    const Clock::time_point queued = Clock::now();
    on_.expect_fine(on_.calls().wait(on_.device()), "wait");
    using Seconds = std::chrono::duration<double>;
    return {Seconds(queued - begin).count() / calls, Seconds(Clock::now() - begin).count() / calls};
  }
  // As many calls a round as take some 10 milliseconds.
  template <class Queue> Times least_times(Queue queue) {
    times_of(1, queue); // compiles, or asks for an algorithm
    Times least = times_of(1, queue);
    const int calls = std::clamp(static_cast<int>(0.01 / least.all), 1, 200);
    for (int round = 0; round < kRounds; ++round) {
      const Times times = times_of(calls, queue);
      least = times.all < least.all ? times : least;
    }
    return least;
  }

  OpenedDevice &on_;
  Arrays arrays_{};
  double copy_rate_ = 0;
};

// A matrix of kRows x kColumns from matrices of that form.
SpmdLoopNest over_matrices(const Speed &speed, uint32_t element, uint32_t count) {
  SpmdLoopNest nest{};
  nest.loops = 2;
  nest.extents[0] = kRows;
  nest.extents[1] = kColumns;
  nest.arrays = count;
  for (uint32_t i = 0; i < count; ++i)
    nest.in[i] = {speed.arrays().in[i], element, ~0u, 0, 0, 0, {kColumns, 1}};
  nest.out = {speed.arrays().out, element, ~0u, 0, 0, 0, {kColumns, 1}};
  nest.factor = nest.divisor = 1;
  return nest;
}

void measure_nest(Speed &speed, const char *name, const SpmdLoopNest &nest, int64_t bytes) {
  OpenedDevice &on = speed.on();
  speed.measure(name, bytes, [&] { return on.calls().nest(on.device(), &nest); });
}

void measure_elementwise(Speed &speed, uint32_t element, const char *name) {
  const std::string of(name);
  const int64_t bytes = kRows * kColumns * device::bytes_of(element);
  SpmdLoopNest sum = over_matrices(speed, element, 2);
  set_steps(sum, {{kSpmdInput, 0, 0, 0}, {kSpmdInput, 1, 0, 0}, {kSpmdAdd, 0, 1, 0}});
  measure_nest(speed, ("sum, " + of).c_str(), sum, 3 * bytes);
  SpmdLoopNest biased = sum;
  biased.in[1].strides[0] = 0;
  measure_nest(speed, ("sum with a row, " + of).c_str(), biased, 2 * bytes);
  // x * 0.5 * (1 + tanh(c * (x + d * x^3)))
  SpmdLoopNest gelu = over_matrices(speed, element, 1);
  gelu.constants = 4;
  const double numbers[] = {0.5, 1, 0.7978845608028654, 0.044715};
  std::copy(std::begin(numbers), std::end(numbers), gelu.numbers);
  set_steps(gelu, {{kSpmdInput, 0, 0, 0},
                   {kSpmdMul, 0, 0, 0},
                   {kSpmdMul, 1, 0, 0},
                   {kSpmdConstant, 3, 0, 0},
                   {kSpmdMul, 2, 3, 0},
                   {kSpmdAdd, 0, 4, 0},
                   {kSpmdConstant, 2, 0, 0},
                   {kSpmdMul, 5, 6, 0},
                   {kSpmdTanh, 7, 0, 0},
                   {kSpmdConstant, 1, 0, 0},
                   {kSpmdAdd, 8, 9, 0},
                   {kSpmdMul, 0, 10, 0},
                   {kSpmdConstant, 0, 0, 0},
                   {kSpmdMul, 11, 12, 0}});
  measure_nest(speed, ("gelu, " + of).c_str(), gelu, 2 * bytes);
}

void measure_sums(Speed &speed, uint32_t element, const char *name) {
  const std::string of(name);
  const int64_t bytes = kRows * kColumns * device::bytes_of(element);
  SpmdLoopNest rows = over_matrices(speed, element, 1);
  rows.inner = 1;
  rows.out.strides[0] = 1;
  set_steps(rows, {{kSpmdInput, 0, 0, 0}});
  measure_nest(speed, ("sum of each row, " + of).c_str(), rows, bytes);
  SpmdLoopNest columns = rows;
  std::swap(columns.extents[0], columns.extents[1]);
  std::swap(columns.in[0].strides[0], columns.in[0].strides[1]);
  measure_nest(speed, ("sum of each column, " + of).c_str(), columns, bytes);
  SpmdLoopNest all = rows;
  all.inner = 2;
  measure_nest(speed, ("sum of all, " + of).c_str(), all, bytes);
}

void measure_moves(Speed &speed) {
  OpenedDevice &on = speed.on();
  SpmdMove move{};
  move.bytes = 4;
  move.loops = 2;
  move.extents[0] = kRows;
  move.extents[1] = kColumns;
  move.from = speed.arrays().in[0];
  move.to = speed.arrays().out;
  move.from_strides[0] = move.to_strides[0] = kColumns;
  move.from_strides[1] = move.to_strides[1] = 1;
  const int64_t bytes = 2 * kRows * kColumns * 4;
  auto queue = [&] { return on.calls().move(on.device(), &move); };
  speed.measure("copy", bytes, queue);
  move.to_strides[0] = 1;
  move.to_strides[1] = kRows;
  speed.measure("transposed", bytes, queue);
  move.bytes = 2;
  speed.measure("transposed, 16 bits", bytes / 2, queue);
  move.bytes = 4;
  move.extents[1] = kColumns / 2;
  move.to_strides[0] = kColumns / 2;
  move.to_strides[1] = 1;
  speed.measure("left half", bytes / 2, queue);
}

// One of 16 elements, which costs what queueing costs, and a collective of one rank; each also in a
// step of its own, as a plan has it.
void measure_overheads(Speed &speed) {
  OpenedDevice &on = speed.on();
  SpmdLoopNest small = over_matrices(speed, kSpmdF32, 2);
  small.extents[0] = 1;
  small.extents[1] = 16;
  set_steps(small, {{kSpmdInput, 0, 0, 0}, {kSpmdInput, 1, 0, 0}, {kSpmdAdd, 0, 1, 0}});
  measure_nest(speed, "sum of 16 elements", small, 0);
  uint32_t step = 0;
  auto begin = [&] { return on.calls().begin(on.device(), ++step); };
  speed.measure("sum of 16 elements, a step each", 0, [&] {
    const SpmdStatus begun = begin();
    return begun.code == kSpmdOk ? on.calls().nest(on.device(), &small) : begun;
  });
  SpmdId id{};
  on.expect_fine(on.calls().make_id(on.device(), &id), "make_id");
  on.expect_fine(on.calls().connect(on.device(), &id), "connect");
  for (uint64_t count : {uint64_t(1) << 10, uint64_t(1) << 24}) {
    const SpmdCollective sum{kSpmdAllReduce, kSpmdAllRanks,        kSpmdSum,           0,
                             kSpmdF32,       speed.arrays().in[0], speed.arrays().out, count};
    speed.measure(("all_reduce of one rank, " + std::to_string(4 * count) + " bytes").c_str(),
                  2 * static_cast<int64_t>(count) * 4,
                  [&] { return on.calls().collective(on.device(), &sum); });
    speed.measure("the same, a step each, between computations", 0, [&] {
      SpmdStatus status = begin();
      if (status.code == kSpmdOk)
        status = on.calls().follow(on.device(), kSpmdCollectives, kSpmdCompute);
      if (status.code == kSpmdOk)
        status = on.calls().collective(on.device(), &sum);
      if (status.code == kSpmdOk)
        status = on.calls().follow(on.device(), kSpmdCompute, kSpmdCollectives);
      return status;
    });
  }
}

void measure_products(Speed &speed) {
  OpenedDevice &on = speed.on();
  for (int64_t extent : {1024, 4096, 8192}) {
    SpmdMatrices product{};
    product.element = product.out_element = kSpmdBF16;
    product.batch = 1;
    product.rows = product.columns = product.inner = extent;
    product.a = speed.arrays().in[0];
    product.b = speed.arrays().in[1];
    product.out = speed.arrays().out;
    product.a_row = product.b_inner = product.out_row = extent;
    product.a_inner = product.b_column = product.out_column = 1;
    product.a_batch = product.b_batch = product.out_batch = extent * extent;
    product.factor = 1;
    const double operations = 2.0 * static_cast<double>(extent * extent * extent);
    speed.measure_product(("bf16 product of " + std::to_string(extent) + "^3").c_str(), operations,
                          [&] { return on.calls().matrices(on.device(), &product); });
  }
}

} // namespace

void measure_speed(OpenedDevice &on) {
  on.run("speed", [&] {
    Speed speed(on);
    measure_moves(speed);
    for (auto [element, name] : {std::pair(kSpmdF32, "f32"), std::pair(kSpmdBF16, "bf16")}) {
      measure_elementwise(speed, element, name);
      measure_sums(speed, element, name);
    }
    measure_products(speed);
    measure_overheads(speed);
  });
}

} // namespace spmd::gpu_test
