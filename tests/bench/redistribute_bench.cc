// What a redistribution plan costs to make: random pairs of types on meshes of three and five axes,
// new and known ones, and its certificate. Prints microseconds per plan: mean, 95th percentile,
// most; and what share is proven and meets its bound.
//   spmd_redistribute_bench [PAIRS]
#include "rules/redistribute/plan.h"
#include "rules/redistribute/verify.h"
#include "tests/bench/random_type.h"

#include "ir/input/input.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include <time.h>

using namespace spmd;
namespace rd = rules::redistribute;

namespace {

double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

struct Figures {
  std::vector<double> times;
  void print(const char *name) {
    std::sort(times.begin(), times.end());
    double sum = 0;
    for (double time : times)
      sum += time;
    fmt::print("  {:<10} mean {:9.2f}  p95 {:9.2f}  most {:9.2f} us\n", name,
               sum / static_cast<double>(times.size()), times[times.size() * 95 / 100],
               times.back());
  }
};

void measure(const char *mesh, unsigned rank, bool partial, bool gradient, unsigned pairs) {
  ir::Program program = ir::read_program(std::string(mesh) + "\n").program;
  ir::Shape shape;
  shape.dtype = ir::DType::F32;
  for (unsigned dim = 0; dim < rank; ++dim)
    shape.dims.push_back(ir::Extent(96 << dim));
  ir::ShapeId whole = program.shapes.add(shape);
  std::mt19937 random(7);
  rd::Planner planner(program);
  rules::Rules rules(program);
  Figures cold, known, verified;
  unsigned proven = 0, bounded = 0, met = 0;
  double bytes = 0, bounds = 0;
  for (unsigned i = 0; i < pairs; ++i) {
    rd::Request request{bench::random_type(program, rank, partial, bench::Order::Any, random),
                        bench::random_type(program, rank, partial, bench::Order::Any, random),
                        whole, rd::kOwnCap, gradient};
    double start = now();
    const rd::Plan &plan = planner.plan(request);
    double planned = now();
    for (unsigned k = 0; k < 16; ++k)
      (void)planner.plan(request);
    double again = now();
    if (std::string wrong = rd::verify(program, rules, request, plan); !wrong.empty())
      fmt::print("{}\n", wrong), std::exit(1);
    cold.times.push_back(planned - start);
    known.times.push_back((again - planned) / 16);
    verified.times.push_back(now() - again);
    proven += plan.proven;
    if (plan.bound && *plan.bound) {
      ++bounded;
      met += plan.bytes == *plan.bound;
      bytes += static_cast<double>(plan.bytes);
      bounds += static_cast<double>(*plan.bound);
    }
  }
  fmt::print("{}, rank {}{}{}: {} pairs, {} proven, {} of {} at the bound, bytes {:.3f} of it\n",
             mesh, rank, partial ? ", partial" : "", gradient ? ", both directions" : "", pairs,
             proven, met, bounded, bounds ? bytes / bounds : 0);
  cold.print("new");
  known.print("known");
  verified.print("verified");
}

} // namespace

int main(int argc, char **argv) {
  unsigned pairs = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 500;
  for (bool partial : {false, true})
    for (bool gradient : {false, true}) {
      measure("mesh m { a = 2, b = 2, c = 2 }", 4, partial, gradient, pairs);
      measure("mesh m { a = 2, b = 4, c = 3 }", 4, partial, gradient, pairs);
      measure("mesh m { a = 2, b = 2, c = 2, d = 2, e = 2 }", 4, partial, gradient, pairs / 5);
    }
  return 0;
}
