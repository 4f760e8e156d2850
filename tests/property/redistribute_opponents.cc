// States and prices are the planner's; which moves are made is not.
#include "tests/property/redistribute_opponents.h"

#include <map>

namespace spmd::property {

namespace rd = rules::redistribute;

namespace {

bool in_mesh_order(const rd::Problem &problem, const rd::State &state) {
  for (unsigned axis = 0; axis < problem.axis_count(); ++axis)
    for (unsigned inner = axis + 1; inner < problem.axis_count(); ++inner)
      if (state.sharded(axis) && state.dim(axis) == state.dim(inner) &&
          state.place(axis) > state.place(inner))
        return false;
  return true;
}

// What one axis is: a dimension, replicated, or partial.
constexpr unsigned kReplicated = 100, kPartial = 101;
unsigned placement(const rd::State &state, unsigned axis) {
  return state.sharded(axis)            ? state.dim(axis)
         : rd::has(state.partial, axis) ? kPartial
                                        : kReplicated;
}

// Places are mesh order.
rd::State with(const rd::Problem &problem, const rd::State &state, unsigned axis, unsigned to) {
  std::vector<unsigned> placements;
  for (unsigned i = 0; i < problem.axis_count(); ++i)
    placements.push_back(i == axis ? to : placement(state, i));
  rd::State next;
  std::map<unsigned, unsigned> positions;
  for (unsigned i = 0; i < problem.axis_count(); ++i) {
    if (placements[i] < kReplicated)
      next.shard(i, placements[i], positions[placements[i]]++);
    else if (placements[i] == kPartial)
      next.partial |= rd::one(i);
  }
  return next;
}

uint64_t bytes_between(unsigned from, unsigned to, uint64_t local, uint64_t n) {
  if (to == kPartial)
    return 0;
  if (from == kReplicated)
    return 0;
  if (from == kPartial)
    return to == kReplicated ? 2 * local * (n - 1) / n : local * (n - 1) / n;
  return to == kReplicated ? local * (n - 1) : local * (n - 1) / n;
}

} // namespace

std::optional<Opponent> greedy(const rd::Problem &problem) {
  if (!in_mesh_order(problem, problem.source) || !in_mesh_order(problem, problem.target) ||
      !problem.even)
    return std::nullopt;
  rd::State state = problem.source;
  Opponent made;
  made.peak = rd::bytes_of(problem, state);
  auto move = [&](unsigned axis, unsigned to) {
    unsigned from = placement(state, axis);
    if (from == to)
      return;
    uint64_t bytes = bytes_between(from, to, rd::bytes_of(problem, state),
                                   static_cast<uint64_t>(problem.sizes[axis]));
    made.bytes += bytes;
    made.collectives += bytes ? 1 : 0;
    state = with(problem, state, axis, to);
    made.peak = std::max(made.peak, rd::bytes_of(problem, state));
  };
  for (unsigned axis = problem.axis_count(); axis-- > 0;) {
    unsigned to = placement(problem.target, axis);
    bool aligned = true;
    for (unsigned outer = 0; to < kReplicated && outer < axis; ++outer)
      aligned &= (placement(state, outer) == to) == (placement(problem.target, outer) == to);
    move(axis, aligned ? to : kReplicated);
  }
  for (unsigned axis = 0; axis < problem.axis_count(); ++axis)
    move(axis, placement(problem.target, axis));
  return made;
}

std::optional<Opponent> normal_form(const rd::Problem &problem) {
  if (problem.source.partial || problem.target.partial || !problem.even)
    return std::nullopt;
  // Every refinement of a state by slices.
  auto refinements = [&](const rd::State &from) {
    std::vector<rd::State> all = {from};
    for (size_t i = 0; i < all.size(); ++i) {
      llvm::SmallVector<rd::Move, 16> moves;
      rd::moves_from(problem, all[i], moves);
      for (const rd::Move &move : moves)
        if (move.form == rd::Form::Slice &&
            std::find(all.begin(), all.end(), move.after) == all.end())
          all.push_back(move.after);
    }
    return all;
  };
  auto local_shape = [&](const rd::State &state) {
    std::vector<int64_t> blocks;
    for (unsigned dim = 0; dim < problem.rank(); ++dim)
      blocks.push_back(rd::block_of(problem, state, dim));
    return blocks;
  };
  std::optional<Opponent> best;
  std::vector<rd::State> targets = refinements(problem.target);
  uint64_t ends =
      std::max(rd::bytes_of(problem, problem.source), rd::bytes_of(problem, problem.target));
  for (const rd::State &sliced : refinements(problem.source))
    for (const rd::State &wanted : targets) {
      if (local_shape(sliced) != local_shape(wanted))
        continue;
      uint64_t local = rd::bytes_of(problem, sliced), whole = rd::bytes_of(problem, problem.target);
      Opponent made;
      made.peak = ends;
      made.bytes = (sliced == wanted ? 0 : local) + whole - local;
      made.collectives = (sliced == wanted ? 0u : 1u) + (whole == local ? 0u : 1u);
      if (!best ||
          std::pair(made.bytes, made.collectives) < std::pair(best->bytes, best->collectives))
        best = made;
    }
  return best;
}

} // namespace spmd::property
