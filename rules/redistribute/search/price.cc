// Prices of steps by the table of transitions (rules/README.md), and bounds from below. Collectives
// cost what rings cost, an all-reduce 2(n - 1)/n of its bytes (Patarasuk and Yuan 2009).
#include "rules/redistribute/search/price.h"

#include <algorithm>

namespace spmd::rules::redistribute {
namespace {

// Far from the largest number, so that sums of a few stay below it.
uint64_t saturated(uint64_t a, uint64_t b) {
  constexpr uint64_t kMost = uint64_t(1) << 60;
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kMost : std::min(product, kMost);
}

uint64_t slowest(llvm::ArrayRef<uint64_t> by_axis, Axes axes, uint64_t otherwise) {
  if (by_axis.empty())
    return otherwise;
  uint64_t most = 0;
  for (; axes; axes &= static_cast<Axes>(axes - 1))
    most = std::max(most, by_axis[first(axes)]);
  return most;
}

// Blocks are enumerated rank by rank up to this many ranks.
constexpr int64_t kMostRanks = 1 << 12;

// Calls `take` with the coordinates of each rank.
template <class Take> void for_each_rank(const Problem &problem, Take take) {
  std::array<uint32_t, kMostAxes> at{};
  while (true) {
    take(llvm::ArrayRef<uint32_t>(at));
    unsigned axis = 0;
    while (axis < problem.axis_count() && ++at[axis] == problem.sizes[axis])
      at[axis++] = 0;
    if (axis == problem.axis_count())
      return;
  }
}

// Elements of the target block that a rank does not hold already.
int64_t lacking(const Problem &problem, const State &from, const State &to,
                llvm::ArrayRef<uint32_t> at) {
  int64_t all = 1, held = 1;
  for (unsigned dim = 0; dim < problem.rank(); ++dim) {
    auto [begin, end] = interval_of(problem, to, dim, at);
    auto [old_begin, old_end] = interval_of(problem, from, dim, at);
    all *= end - begin;
    held *= std::max<int64_t>(0, std::min(end, old_end) - std::max(begin, old_begin));
  }
  return all - held;
}

uint64_t most_lacking(const Problem &problem, const State &from, const State &to) {
  int64_t most = 0;
  for_each_rank(problem, [&](llvm::ArrayRef<uint32_t> at) {
    most = std::max(most, lacking(problem, from, to, at));
  });
  return static_cast<uint64_t>(most * problem.element_bytes);
}

// Until some rank knows the sum of g terms there are g - 1 messages, and each further rank that is
// to know it gets one more: per element, spread over all ranks.
uint64_t message_bound(const Problem &problem, const State &from, const State &to) {
  int64_t terms = problem.ranks_of(from.partial);
  int64_t knowing = problem.ranks_of(problem.replicated(to));
  int64_t ranks = problem.ranks_of(problem.all());
  uint64_t bytes = static_cast<uint64_t>(problem.element_bytes);
  for (int64_t extent : problem.extents)
    bytes = saturated(bytes, static_cast<uint64_t>(extent));
  uint64_t sent = saturated(bytes, static_cast<uint64_t>(terms + knowing - 2));
  return (sent + static_cast<uint64_t>(ranks) - 1) / static_cast<uint64_t>(ranks);
}

} // namespace

std::pair<int64_t, int64_t> interval_of(const Problem &problem, const State &state, unsigned dim,
                                        llvm::ArrayRef<uint32_t> at) {
  std::array<uint8_t, kMostAxes> axes;
  unsigned count = 0;
  for (unsigned axis = 0; axis < problem.axis_count(); ++axis)
    if (state.dim(axis) == dim) {
      axes[state.place(axis)] = static_cast<uint8_t>(axis);
      ++count;
    }
  int64_t begin = 0, end = problem.extents[dim];
  for (unsigned i = 0; i < count; ++i) {
    int64_t size = problem.sizes[axes[i]], piece = (end - begin + size - 1) / size;
    begin = std::min(end, begin + at[axes[i]] * piece);
    end = std::min(end, begin + piece);
  }
  return {begin, end};
}

StepPrice price_of(const Problem &problem, const Exchange &step) {
  StepPrice price;
  price.axes = step.axes;
  uint64_t n = step.ranks;
  uint64_t element = static_cast<uint64_t>(problem.element_bytes);
  uint64_t once = saturated(n - 1, saturated(step.piece, element));
  // A ring of any pieces, those of a single element too.
  auto reduced = [&] { return (saturated(2, once) + n - 1) / n; };
  auto both_ways = [&](uint64_t bytes, uint64_t hops) {
    price.bytes = price.backward_bytes = bytes;
    price.hops = price.backward_hops = hops;
  };
  switch (step.form) {
  case Form::Slice:
    if (step.from_invariant) {
      price.backward_bytes = once;
      price.backward_hops = n - 1;
    }
    break;
  case Form::AllToAll:
  case Form::Scatter:
    both_ways(once, n - 1);
    break;
  case Form::Gather:
    both_ways(once, n - 1);
    if (step.to_invariant)
      price.backward_bytes = price.backward_hops = 0;
    break;
  case Form::Reorder:
    both_ways(saturated(step.piece, element), 1);
    break;
  case Form::Reduce:
    both_ways(reduced(), 2 * (n - 1));
    if (step.to_invariant)
      price.backward_bytes = price.backward_hops = 0;
    price.padded = saturated(2 * (n - 1), saturated((step.piece + n - 1) / n, element));
    break;
  case Form::Keep:
  case Form::Zeros:
    break;
  case Form::Convert:
    if (step.from_invariant) {
      price.backward_bytes = reduced();
      price.backward_hops = 2 * (n - 1);
    }
    break;
  }
  price.padded = std::max(price.padded, price.bytes);
  return price;
}

StepPrice price_of(const Problem &problem, const State &before, const Move &move) {
  const State &after = move.after;
  Exchange step{.form = move.form};
  Axes left = before.sharding, entered = after.sharding;
  auto elements = [&](const State &state) {
    return static_cast<uint64_t>(elements_of(problem, state));
  };
  switch (move.form) {
  case Form::Slice:
    step.axes = without(entered, left);
    step.piece = elements(after);
    break;
  case Form::Gather:
    step.axes = without(left, entered);
    step.piece = elements(before);
    break;
  case Form::AllToAll: {
    for (Axes set = before.sharding; set; set &= static_cast<Axes>(set - 1))
      if (before.dim(first(set)) != after.dim(first(set)))
        step.axes |= one(first(set));
    if (problem.even)
      break;
    unsigned to = after.dim(first(step.axes));
    step.piece = 1;
    for (unsigned dim = 0; dim < problem.rank(); ++dim)
      step.piece *= static_cast<uint64_t>(block_of(problem, dim == to ? after : before, dim));
    break;
  }
  case Form::Reorder:
    if (!problem.prices.beta.empty()) // else it is no matter which
      for (const Moved &each : moved_axes(problem, before, move))
        step.axes |= one(each.axis);
    step.piece = elements(before);
    break;
  case Form::Reduce:
  case Form::Scatter:
    step.axes = without(before.partial, after.partial);
    break;
  case Form::Keep:
  case Form::Zeros:
    step.axes = without(after.partial, before.partial);
    break;
  case Form::Convert:
    step.axes = before.invariant ^ after.invariant;
    break;
  }
  step.ranks = static_cast<uint64_t>(problem.ranks_of(step.axes));
  step.from_invariant = before.invariant & step.axes;
  step.to_invariant = after.invariant & step.axes;
  if (move.form == Form::AllToAll && problem.even)
    step.piece = elements(before) / step.ranks;
  else if (move.form == Form::Scatter)
    step.piece = elements(after);
  else if (move.form == Form::Reduce || move.form == Form::Convert)
    step.piece = elements(before);
  StepPrice price = price_of(problem, step);
  bool exact = move.form == Form::Gather || move.form == Form::AllToAll;
  if (exact && !problem.even && problem.ranks_of(problem.all()) <= kMostRanks)
    price.bytes = most_lacking(problem, before, after);
  return price;
}

Cost cost_of(const Problem &problem, const StepPrice &step) {
  uint64_t bytes = step.bytes, hops = step.hops;
  uint32_t collectives = step.hops ? 1 : 0;
  bool local = !step.hops;
  if (problem.gradient) {
    bytes += step.backward_bytes;
    hops += step.backward_hops;
    collectives += step.backward_hops ? 1 : 0;
  }
  const Prices &prices = problem.prices;
  Cost cost;
  cost.price = saturated(bytes, slowest(prices.beta, step.axes, 1));
  cost.price += hops * slowest(prices.alpha, step.axes, 0) + collectives * prices.launch;
  cost.bytes = bytes;
  cost.collectives = collectives;
  cost.local_steps = local;
  return cost;
}

std::optional<uint64_t> receive_bound(const Problem &problem, const State &from, const State &to) {
  if (to.partial)
    return std::nullopt;
  if (from.partial)
    return message_bound(problem, from, to);
  if (problem.ranks_of(problem.all()) <= (int64_t(1) << 20))
    return most_lacking(problem, from, to);
  // Of many ranks those at the corners of the mesh: a bound still, if perhaps not the best.
  int64_t most = 0;
  for (unsigned corner = 0; corner < 1u << problem.axis_count(); ++corner) {
    std::array<uint32_t, kMostAxes> at{};
    for (unsigned axis = 0; axis < problem.axis_count(); ++axis)
      at[axis] = has(static_cast<Axes>(corner), axis)
                     ? static_cast<uint32_t>(problem.sizes[axis] - 1)
                     : 0u;
    most = std::max(most, lacking(problem, from, to, at));
  }
  return static_cast<uint64_t>(most * problem.element_bytes);
}

Heuristic::Heuristic(const Problem &problem) : problem_(problem) {
  if (!problem.prices.beta.empty())
    beta_ = *std::min_element(problem.prices.beta.begin(), problem.prices.beta.end());
  if (problem.target.partial)
    return;
  constexpr unsigned kMostCorners = 6; // axes of which both ends are looked at
  unsigned varied = std::min(problem.axis_count(), kMostCorners);
  for (unsigned corner = 0; corner < 1u << varied; ++corner) {
    Rank rank;
    for (unsigned axis = 0; axis < problem.axis_count(); ++axis)
      if (has(static_cast<Axes>(corner), axis % kMostCorners))
        rank.at[axis] = static_cast<uint32_t>(problem.sizes[axis] - 1);
    rank.elements = 1;
    for (unsigned dim = 0; dim < problem.rank(); ++dim) {
      rank.box.push_back(interval_of(problem, problem.target, dim, rank.at));
      rank.elements *= rank.box.back().second - rank.box.back().first;
    }
    ranks_.push_back(std::move(rank));
  }
}

Cost Heuristic::operator()(const State &state) const {
  uint64_t bytes = 0;
  if (state.partial && !problem_.target.partial) {
    bytes = message_bound(problem_, state, problem_.target);
  } else {
    int64_t most = 0;
    for (const Rank &rank : ranks_) {
      int64_t held = 1;
      for (unsigned dim = 0; dim < problem_.rank() && held; ++dim) {
        auto [begin, end] = interval_of(problem_, state, dim, rank.at);
        auto [wanted, last] = rank.box[dim];
        held *= std::max<int64_t>(0, std::min(end, last) - std::max(begin, wanted));
      }
      most = std::max(most, rank.elements - held);
    }
    bytes = static_cast<uint64_t>(most * problem_.element_bytes);
  }
  // Where nothing is I each row sends backward what it sends forward.
  unsigned ways = problem_.gradient && !problem_.has_invariant ? 2 : 1;
  bytes = saturated(bytes, ways);
  return {saturated(bytes, beta_) + (bytes ? ways * problem_.prices.launch : 0), bytes,
          bytes ? ways : 0u, 0};
}

} // namespace spmd::rules::redistribute
