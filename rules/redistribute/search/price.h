// What a step costs, and bounds that no sequence of messages can beat.
#pragma once

#include "rules/redistribute/search/state.h"

#include <optional>

namespace spmd::rules::redistribute {

// Bytes are received by the busiest rank; padded: as a collective that moves equal blocks only has
// them. `hops`: latency steps of the ring or pairwise form. Backward: of the gradient through the
// step.
struct StepPrice {
  uint64_t bytes = 0, padded = 0, hops = 0;
  uint64_t backward_bytes = 0, backward_hops = 0;
  Axes axes = 0; // that the step runs over; of a reorder only where prices differ by axis
};
// What decides it.
struct Exchange {
  Form form;
  Axes axes = 0;
  uint64_t ranks = 1;                                // of the axes
  uint64_t piece = 0;                                // elements that one rank gives another
  bool from_invariant = false, to_invariant = false; // the axes are I before, after
};
StepPrice price_of(const Problem &problem, const Exchange &step);
StepPrice price_of(const Problem &problem, const State &before, const Move &move);

// Compared in this order. Without prices in time the first two are equal.
struct Cost {
  uint64_t price = 0, bytes = 0;
  uint32_t collectives = 0, local_steps = 0;

  friend Cost operator+(const Cost &a, const Cost &b) {
    uint64_t price = a.price + b.price;
    return {price < a.price ? ~uint64_t(0) : price, a.bytes + b.bytes,
            a.collectives + b.collectives, a.local_steps + b.local_steps};
  }
  friend auto operator<=>(const Cost &, const Cost &) = default;
};
inline constexpr Cost kUnreachable{~uint64_t(0), ~uint64_t(0), ~0u, ~0u};
Cost cost_of(const Problem &problem, const StepPrice &price);

// Bytes that some rank must receive to get from the source to the target by any means: what it
// lacks where nothing is partial, else the messages that sum the terms and tell the others, shared
// evenly. None where the target is partial.
std::optional<uint64_t> receive_bound(const Problem &problem, const State &from, const State &to);

// A bound on the cost of all that is left from a state to the target of the problem: the same
// over a few ranks, none of which a step can serve for less than it costs.
class Heuristic {
public:
  explicit Heuristic(const Problem &problem);
  Cost operator()(const State &state) const;

private:
  struct Rank {
    std::array<uint32_t, kMostAxes> at{};                  // coordinates
    llvm::SmallVector<std::pair<int64_t, int64_t>, 4> box; // first and end, of its target block
    int64_t elements = 0;
  };
  const Problem &problem_;
  llvm::SmallVector<Rank, 0> ranks_;
  uint64_t beta_ = 1;
};

// The block of a dimension that a rank at these coordinates holds: first element and the one
// behind.
std::pair<int64_t, int64_t> interval_of(const Problem &problem, const State &state, unsigned dim,
                                        llvm::ArrayRef<uint32_t> at);

} // namespace spmd::rules::redistribute
