// Plans against other ways to redistribute, all priced by one table: one axis at a time, and
// slices, one permutation, gathers. Prints how often a plan sends less, and how much; exits with 1
// if it ever sends more.
//   spmd_opponents_bench [PAIRS]
#include "rules/redistribute/numeric_problem.h"
#include "rules/redistribute/plan.h"
#include "tests/bench/random_type.h"
#include "tests/property/redistribute_opponents.h"

#include "ir/input/input.h"

#include <fmt/core.h>

#include <cstdlib>

using namespace spmd;
namespace rd = rules::redistribute;

namespace {

using Planned = std::optional<property::Opponent> (*)(const rd::Problem &);

struct Tally {
  unsigned pairs = 0, fewer = 0, calls = 0, same = 0, worse = 0, above_cap = 0;
  double ours = 0, theirs = 0, most = 1;

  void add(const rd::Plan &plan, const property::Opponent &other) {
    ++pairs;
    above_cap += other.peak > plan.cap;
    ours += static_cast<double>(plan.bytes);
    theirs += static_cast<double>(other.bytes);
    if (plan.bytes)
      most = std::max(most, static_cast<double>(other.bytes) / static_cast<double>(plan.bytes));
    if (plan.bytes > other.bytes)
      ++worse;
    else if (plan.bytes < other.bytes)
      ++fewer;
    else if (plan.collectives != other.collectives)
      ++(plan.collectives < other.collectives ? calls : worse);
    else
      ++same;
  }
};

bool compare(const char *name, Planned other, bench::Order order, const char *mesh, unsigned rank,
             bool partial, unsigned pairs) {
  ir::Program program = ir::read_program(fmt::format("mesh m {{ {} }}\n", mesh)).program;
  ir::Shape shape;
  shape.dtype = ir::DType::F32;
  for (unsigned dim = 0; dim < rank; ++dim)
    shape.dims.push_back(ir::Extent(96 << dim));
  ir::ShapeId whole = program.shapes.add(shape);
  std::mt19937 random(7);
  rd::Planner planner(program);
  Tally tally;
  for (unsigned i = 0; i < pairs; ++i) {
    rd::Request request{bench::random_type(program, rank, partial, order, random),
                        bench::random_type(program, rank, partial, order, random), whole,
                        rd::kOwnCap, false};
    if (request.source == request.target)
      continue;
    std::optional<property::Opponent> found =
        other(rd::to_numeric_problem(program, request, planner.topology()).problem);
    if (!found)
      continue;
    rd::Plan plan = planner.plan(request);
    const uint64_t cap = plan.cap;
    // One that holds more is met without a cap.
    if (found->peak > cap) {
      request.cap = rd::kNoCap;
      plan = planner.plan(request);
      plan.cap = cap;
    }
    tally.add(plan, *found);
  }
  auto share = [&](unsigned part) { return 100.0 * part / tally.pairs; };
  fmt::print("{:<10} {:<26} {} {:<8} {:5} pairs: fewer bytes {:4.1f} %, as many in fewer "
             "collectives {:4.1f} %, same {:4.1f} %, worse {}; bytes {:.2f} times ours, {:.1f} at "
             "most; above the cap {:4.1f} %\n",
             name, mesh, rank, partial ? "partial" : "", tally.pairs, share(tally.fewer),
             share(tally.calls), share(tally.same), tally.worse, tally.theirs / tally.ours,
             tally.most, share(tally.above_cap));
  return tally.worse == 0;
}

} // namespace

int main(int argc, char **argv) {
  unsigned pairs = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 1000;
  bool never_worse = true;
  for (const char *mesh : {"a = 2, b = 2", "a = 2, b = 3", "a = 4, b = 2", "a = 2, b = 2, c = 2",
                           "a = 2, b = 4, c = 3"})
    for (unsigned rank : {2u, 3u}) {
      never_worse &=
          compare("per axis", property::greedy, bench::Order::Mesh, mesh, rank, false, pairs);
      never_worse &=
          compare("per axis", property::greedy, bench::Order::Mesh, mesh, rank, true, pairs);
      never_worse &=
          compare("two-phase", property::normal_form, bench::Order::Any, mesh, rank, false, pairs);
    }
  return never_worse ? 0 : 1;
}
