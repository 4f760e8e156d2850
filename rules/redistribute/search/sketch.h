// A problem with most of it forgotten: of each axis it is kept whether it is where the target has
// it. What is left are a few hundred sketches of states, so that the least cost from each of them
// to that of the target can be found at once. It is a bound on the cost from every state that looks
// like it, since each move between states is one between their sketches, at its own price (a
// pattern database).
#pragma once

#include "rules/redistribute/search/price.h"

#include <vector>

namespace spmd::rules::redistribute {

// Axes that are in none of these sets are replicated.
struct Sketch {
  Axes finished = 0; // in their final position, and so are all outside of them
  Axes here = 0;     // in the dimension of the target, in another position
  Axes away = 0;     // in another dimension
  Axes partial = 0;
  Axes invariant = 0; // where that matters to prices

  Axes sharded() const { return finished | here | away; }
  friend bool operator==(const Sketch &, const Sketch &) = default;
};

class Sketches {
public:
  // Problems with even blocks and few axes.
  static bool serves(const Problem &problem);
  explicit Sketches(const Problem &problem);

  // Moves between sketches that were looked at.
  size_t moves() const { return edges_.size(); }
  Sketch of(const State &state) const;
  // kUnreachable: the cap leaves no way.
  Cost rest(const State &state) const;

private:
  class Moves;
  struct Edge {
    uint32_t from, to;
    Cost cost;
  };
  uint32_t code(const Sketch &sketch) const {
    return code_[sketch.finished] + 2 * code_[sketch.here] + 3 * code_[sketch.away] +
           4 * code_[sketch.partial] + 5 * code_[sketch.invariant];
  }
  uint32_t node(const Sketch &sketch);
  void moves_from(uint32_t from);
  void solve();

  // The axes enter dimensions as innermost ones; the best that can come of it.
  Sketch entered(Sketch sketch, Axes axes) const;
  // Whether some state of this sketch has the axes at the ends of their dimensions.
  bool trailing(const Sketch &sketch, Axes axes) const;
  bool same_shape(const Sketch &sketch, Axes axes) const;
  // Whether the axes, each outside of its dimension of the target, can cut the dimensions into that
  // many blocks.
  bool filled(Axes axes, llvm::MutableArrayRef<int64_t> missing) const;
  void add(uint32_t from, const Sketch &after, const StepPrice &price);
  void add_free(uint32_t from, const Sketch &after) { edges_.push_back({from, node(after), {}}); }
  uint64_t bytes(const Sketch &sketch) const;

  const Problem &problem_;
  std::array<Axes, kMostAxes>
      outside_{}; // by axis: those further out in its dimension of the target
  std::array<Axes, kMostDims + 1> wanted_{}; // by dimension: all that shard it in the target
  uint64_t whole_ = 1;                       // elements
  std::vector<Sketch> sketches_;
  std::vector<Cost> rest_;
  std::vector<Edge> edges_;
  bool mixed_ = false; // I and R are different states
  std::vector<uint32_t> code_,
      node_; // sketches as numbers of base 5 or 6: by set of axes, by number
};

} // namespace spmd::rules::redistribute
