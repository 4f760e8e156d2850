// The plan is taken as its steps alone: what the search said of it is not used.
#include "rules/redistribute/prove.h"

#include "rules/redistribute/numeric_problem.h"

#include <tuple>

namespace spmd::rules::redistribute {

Proof prove(ir::Program &program, const Request &request, const Topology &topology,
            const Plan &plan) {
  NumericProblem posed = to_numeric_problem(program, request, topology);
  if (!plan.within_cap)
    posed.problem.cap = kNoCap;
  Cost cost;
  for (const Step &step : plan.steps) {
    StepPrice price{step.bytes,          step.padded_bytes,  step.hops,
                    step.backward_bytes, step.backward_hops, 0};
    for (unsigned axis = 0; axis < posed.axes.size(); ++axis)
      if (llvm::is_contained(step.axes, posed.axes[axis]))
        price.axes |= one(axis);
    cost = cost + cost_of(posed.problem, price);
  }
  std::optional<Cost> least = exhaustive_cost(posed.problem);
  if (!least)
    return Proof::TooManyStates;
  // Slices in a row are one step of a plan where that costs no more: it may be cheaper than its
  // moves.
  auto known = [](const Cost &each) {
    return std::tuple(each.price, each.bytes, each.collectives);
  };
  return known(cost) <= known(*least) ? Proof::Cheapest : Proof::NotCheapest;
}

} // namespace spmd::rules::redistribute
