// Plans: the search, its moves as steps, and the memo of both.
#include "rules/redistribute/plan.h"

#include "rules/redistribute/emit.h"
#include "rules/redistribute/numeric_problem.h"

namespace spmd::rules::redistribute {

struct Planner::State {
  struct Entry {
    Request request;
    std::unique_ptr<Plan> plan;
  };
  std::vector<Entry> entries;
  ir::IndexTable table;
};

Planner::Planner(ir::Program &program, Topology topology, SearchBudget *effort)
    : program_(program), topology_(std::move(topology)), effort_(effort),
      state_(std::make_unique<State>()) {}
Planner::~Planner() = default;

namespace {

uint64_t hash_of(const Request &request) {
  uint64_t seed = ir::mix(request.source.index, request.target.index);
  seed = ir::mix(seed, request.shape.index);
  return ir::mix(ir::mix(seed, request.cap), request.gradient);
}

// The search; without a cap if none of the sequences keeps it.
Found found(NumericProblem &posed, Plan &plan, SearchBudget *effort) {
  constexpr uint64_t kSetUp = 100; // moves that take as long as posing a problem
  const Problem &problem = posed.problem;
  auto search = [&](const Problem &each) {
    if (!effort)
      return redistribute::search(each);
    if (!effort->spend(kSetUp))
      return Found();
    Found made = redistribute::search(each, kBudget, std::min(effort->left, kMostMoves - 1));
    effort->spend(made.tried);
    return made;
  };
  plan.cap = problem.cap;
  if (problem.source == problem.target) {
    Found nothing;
    nothing.reached = nothing.proven = true;
    return nothing;
  }
  Found best = search(problem);
  if (best.reached)
    return best;
  plan.within_cap = false;
  posed.problem.cap = kNoCap;
  best = search(problem);
  if (best.reached)
    return best;
  best.proven = false;
  best.moves = fallback_moves(problem);
  State at = problem.source;
  for (const Move &move : best.moves) {
    best.cost = best.cost + cost_of(problem, price_of(problem, at, move));
    at = move.after;
  }
  return best;
}

} // namespace

const Plan &Planner::plan(const Request &request) {
  uint32_t &slot = state_->table.find(
      hash_of(request), [&](uint32_t i) { return state_->entries[i].request == request; });
  if (slot != ir::IndexTable::kEmpty)
    return *state_->entries[slot].plan;
  slot = static_cast<uint32_t>(state_->entries.size());
  state_->table.inserted();
  state_->entries.push_back({request, std::make_unique<Plan>()});
  Plan &plan = *state_->entries.back().plan;
  NumericProblem posed = to_numeric_problem(program_, request, topology_);
  Found best = found(posed, plan, effort_);
  const Problem &problem = posed.problem;
  plan.peak_bytes = bytes_of(problem, problem.source);
  emit(program_, request, posed, best.moves, plan);
  for (const Step &step : plan.steps) {
    plan.bytes += step.bytes;
    plan.padded_bytes += step.padded_bytes;
    plan.backward_bytes += step.backward_bytes;
    plan.collectives += step.hops ? 1 : 0;
  }
  plan.bound = receive_bound(problem, problem.source, problem.target);
  plan.price = best.cost.price;
  plan.proven = best.proven;
  plan.expanded = best.expanded;
  return plan;
}

} // namespace spmd::rules::redistribute
