// Sketches, their moves, and the costs that are left from each.
#include "rules/redistribute/search/sketch.h"

#include <queue>

namespace spmd::rules::redistribute {
namespace {

// An axis is in one of five sets, or in one of six: 6^7 are 280 000 numbers of sketches, and each
// axis more is six times as many.
constexpr unsigned kMostSketchedAxes = 7;

constexpr uint32_t kNone = ~0u;

template <class Take> void for_each_axis(Axes set, Take take) {
  for (; set; set &= static_cast<Axes>(set - 1))
    take(first(set));
}
template <class Take> void for_each_subset(Axes set, Take take) {
  for (Axes subset = set; subset; subset = static_cast<Axes>((subset - 1) & set))
    take(subset);
}

} // namespace

// Blocks of uneven cuts depend on the order of axes, which a sketch forgets.
bool Sketches::serves(const Problem &problem) {
  return problem.even && problem.axis_count() <= kMostSketchedAxes;
}

Sketches::Sketches(const Problem &problem)
    : problem_(problem), mixed_(problem.has_invariant && problem.gradient) {
  const State &target = problem.target;
  for (unsigned axis = 0; axis < problem.axis_count(); ++axis) {
    if (!target.sharded(axis))
      continue;
    wanted_[target.dim(axis)] |= one(axis);
    for (unsigned other = 0; other < problem.axis_count(); ++other)
      if (target.dim(other) == target.dim(axis) && target.place(other) < target.place(axis))
        outside_[axis] |= one(other);
  }
  code_.assign(size_t(1) << problem.axis_count(), 0);
  uint32_t power = 1;
  for (unsigned axis = 0; axis < problem.axis_count(); ++axis, power *= mixed_ ? 6 : 5)
    for (size_t set = 0; set < code_.size(); ++set)
      code_[set] += set >> axis & 1 ? power : 0;
  node_.assign(power, kNone);
  for (int64_t extent : problem.extents)
    whole_ *= static_cast<uint64_t>(extent);
  node(of(problem.source));
  for (uint32_t i = 0; i < sketches_.size(); ++i)
    moves_from(i);
  solve();
}

// The first eight nibbles that are 0, as a set.
static Axes zeros_of(uint64_t nibbles) {
  uint64_t set = nibbles | nibbles >> 1;
  set = ~(set | set >> 2) & 0x11111111;
  set = (set | set >> 3) & 0x03030303;
  set = (set | set >> 6) & 0x000F000F;
  return static_cast<Axes>((set | set >> 12) & 0xFF);
}

Sketch Sketches::of(const State &state) const {
  const State &target = problem_.target;
  Sketch sketch;
  sketch.partial = state.partial;
  sketch.invariant = mixed_ ? state.invariant : 0;
  Axes here = state.sharding & zeros_of(state.dims ^ target.dims);
  Axes same = here & zeros_of(state.order ^ target.order);
  for_each_axis(same, [&](unsigned axis) {
    if (!without(outside_[axis], same))
      sketch.finished |= one(axis);
  });
  sketch.here = without(here, sketch.finished);
  sketch.away = without(state.sharding, here);
  return sketch;
}

Cost Sketches::rest(const State &state) const {
  uint32_t index = node_[code(of(state))];
  return index == kNone ? Cost{} : rest_[index];
}

uint32_t Sketches::node(const Sketch &sketch) {
  uint32_t &index = node_[code(sketch)];
  if (index == kNone) {
    index = static_cast<uint32_t>(sketches_.size());
    sketches_.push_back(sketch);
  }
  return index;
}

Sketch Sketches::entered(Sketch sketch, Axes axes) const {
  sketch.partial = without(sketch.partial, axes);
  sketch.invariant = without(sketch.invariant, axes);
  for (bool more = true; more;) {
    more = false;
    for_each_axis(axes, [&](unsigned axis) {
      unsigned dim = problem_.target.dim(axis);
      if (dim == kNoDim || (sketch.here & wanted_[dim]) || without(outside_[axis], sketch.finished))
        return;
      sketch.finished |= one(axis);
      axes = without(axes, one(axis));
      more = true;
    });
  }
  for_each_axis(axes, [&](unsigned axis) {
    (problem_.target.sharded(axis) ? sketch.here : sketch.away) |= one(axis);
  });
  return sketch;
}

bool Sketches::trailing(const Sketch &sketch, Axes axes) const {
  bool so = true;
  // Inside of what is in its final position are axes in theirs further in, and all others.
  for_each_axis(axes & sketch.finished, [&](unsigned axis) {
    Axes inside = wanted_[problem_.target.dim(axis)] & sketch.here;
    for_each_axis(sketch.finished, [&](unsigned other) {
      if (has(outside_[other], axis))
        inside |= one(other);
    });
    so &= !without(inside, axes);
  });
  return so;
}

// Whether a state of this sketch may have blocks as long as one in which the axes shard the
// dimensions that they do in the target.
bool Sketches::same_shape(const Sketch &sketch, Axes axes) const {
  std::array<int64_t, kMostDims> missing;
  for (unsigned dim = 0; dim < problem_.rank(); ++dim) {
    int64_t held = problem_.ranks_of((sketch.finished | sketch.here) & wanted_[dim]);
    int64_t asked = problem_.ranks_of(axes & wanted_[dim]);
    if (asked % held)
      return false;
    missing[dim] = asked / held;
  }
  return filled(sketch.away, missing);
}

bool Sketches::filled(Axes axes, llvm::MutableArrayRef<int64_t> missing) const {
  if (!axes)
    return true; // there are as many ranks on either side
  unsigned axis = first(axes);
  int64_t size = problem_.sizes[axis];
  for (unsigned dim = 0; dim < problem_.rank(); ++dim) {
    if (dim == problem_.target.dim(axis) || missing[dim] % size)
      continue;
    missing[dim] /= size;
    bool so = filled(without(axes, one(axis)), missing);
    missing[dim] *= size;
    if (so)
      return true;
  }
  return false;
}

uint64_t Sketches::bytes(const Sketch &sketch) const {
  return whole_ / static_cast<uint64_t>(problem_.ranks_of(sketch.sharded())) *
         static_cast<uint64_t>(problem_.element_bytes);
}

void Sketches::add(uint32_t from, const Sketch &after, const StepPrice &price) {
  if (bytes(after) <= problem_.cap)
    edges_.push_back({from, node(after), cost_of(problem_, price)});
}

// All moves from one sketch.
class Sketches::Moves {
public:
  Moves(Sketches &all, uint32_t from)
      : all_(all), problem_(all.problem_), from_(from), sketch_(all.sketches_[from]),
        sharded_(sketch_.sharded()),
        replicated_(without(problem_.all(), sharded_ | sketch_.partial)),
        held_(all.whole_ / static_cast<uint64_t>(problem_.ranks_of(sharded_))) {}

  void add_all() {
    cut();
    gather();
    exchange();
    reorder();
    reduce();
    if (all_.mixed_)
      convert();
    move_away();
  }

private:
  void about(Form form, Axes axes) {
    step_ = {.form = form, .axes = axes};
    step_.ranks = static_cast<uint64_t>(problem_.ranks_of(axes));
    step_.piece = held_;
    step_.from_invariant = sketch_.invariant & axes;
  }
  void add(const Sketch &after) { all_.add(from_, after, price_of(problem_, step_)); }
  void add_replicated(Sketch after, Axes freed) {
    add(after);
    if (!all_.mixed_)
      return;
    after.invariant |= freed;
    step_.to_invariant = true;
    add(after);
  }
  static Sketch left(Sketch after, Axes axes) {
    after.finished = without(after.finished, axes);
    after.here = without(after.here, axes);
    after.away = without(after.away, axes);
    return after;
  }

  void cut() {
    for_each_axis(replicated_, [&](unsigned axis) {
      about(Form::Slice, one(axis));
      step_.piece = held_ / step_.ranks;
      add(all_.entered(sketch_, one(axis)));
      if (!has(problem_.may_keep, axis))
        return;
      Sketch after = sketch_;
      after.partial |= one(axis);
      after.invariant = without(after.invariant, one(axis));
      about(Form::Keep, one(axis));
      add(after);
    });
  }

  void gather() {
    for_each_subset(sharded_, [&](Axes axes) {
      if (!all_.trailing(sketch_, axes))
        return;
      about(Form::Gather, axes);
      add_replicated(left(sketch_, axes), axes);
      if (axes & (axes - 1) || without(axes, problem_.may_zero_fill))
        return;
      Sketch after = left(sketch_, axes);
      after.partial |= axes;
      about(Form::Zeros, axes);
      add(after);
    });
  }

  // What is in its final position or here comes away for nothing, by move_away().
  void exchange() {
    for (unsigned dim = 0; dim < problem_.rank(); ++dim)
      for_each_subset(sketch_.away & all_.wanted_[dim], [&](Axes axes) {
        about(Form::AllToAll, axes);
        step_.piece = held_ / step_.ranks;
        add(all_.entered(left(sketch_, axes), axes));
      });
  }

  void reorder() {
    for_each_subset(without(problem_.all(), sketch_.partial), [&](Axes axes) {
      if (problem_.ranks_of(axes) == problem_.ranks_of(sharded_))
        reorder_to(axes);
    });
  }
  void reorder_to(Axes axes) {
    // Axes that are freed are of the one kind that the consumed ones had.
    Axes freed = without(sharded_, axes), consumed = without(axes, sharded_);
    Axes invariant = consumed & sketch_.invariant;
    if (invariant && invariant != consumed)
      return;
    Sketch bare = left(sketch_, sharded_);
    if (invariant)
      bare.invariant |= freed;
    Sketch best = all_.entered(bare, axes);
    bool fits = best.away || all_.same_shape(sketch_, axes);
    // It may run over few of them.
    for_each_axis(problem_.prices.beta.empty() ? one(first(axes)) : axes, [&](unsigned over) {
      about(Form::Reorder, one(over));
      if (fits)
        return add(best);
      for_each_axis(axes, [&](unsigned axis) {
        Sketch after = all_.entered(left(best, axes), without(axes, one(axis)));
        after.away |= one(axis);
        add(after);
      });
    });
  }

  void reduce() {
    for_each_subset(sketch_.partial, [&](Axes axes) {
      Sketch after = sketch_;
      after.partial = without(after.partial, axes);
      about(Form::Reduce, axes);
      add_replicated(after, axes);
      about(Form::Scatter, axes);
      step_.piece = held_ / step_.ranks;
      add(all_.entered(sketch_, axes));
    });
  }

  void convert() {
    for (Axes side : {sketch_.invariant, without(replicated_, sketch_.invariant)})
      for_each_subset(side, [&](Axes axes) {
        Sketch after = sketch_;
        after.invariant ^= axes;
        about(Form::Convert, axes);
        add(after);
      });
  }

  // Nothing is better for being further from the target: a worse sketch is reached from a better
  // one for nothing, so that what is left from it is never less.
  void move_away() {
    for_each_axis(sketch_.finished, [&](unsigned axis) {
      bool last = true;
      for_each_axis(sketch_.finished,
                    [&](unsigned other) { last &= !has(all_.outside_[other], axis); });
      if (!last)
        return;
      Sketch after = left(sketch_, one(axis));
      after.here |= one(axis);
      all_.add_free(from_, after);
    });
    for_each_axis(sketch_.here, [&](unsigned axis) {
      Sketch after = left(sketch_, one(axis));
      after.away |= one(axis);
      all_.add_free(from_, after);
    });
  }

  Sketches &all_;
  const Problem &problem_;
  uint32_t from_;
  const Sketch sketch_; // a copy: the list that holds it grows
  Axes sharded_, replicated_;
  uint64_t held_; // elements
  Exchange step_;
};

void Sketches::moves_from(uint32_t from) { Moves(*this, from).add_all(); }

// Dijkstra's algorithm from the target over the edges turned round: one pass gives the least cost
// from every sketch. Edges stand by their ends in one array, found by where each end's begin.
void Sketches::solve() {
  std::vector<uint32_t> begin(sketches_.size() + 1), by_end(edges_.size());
  for (const Edge &edge : edges_)
    ++begin[edge.to + 1];
  for (size_t i = 1; i < begin.size(); ++i)
    begin[i] += begin[i - 1];
  std::vector<uint32_t> next(begin.begin(), begin.end() - 1);
  for (uint32_t i = 0; i < edges_.size(); ++i)
    by_end[next[edges_[i].to]++] = i;
  rest_.assign(sketches_.size(), kUnreachable);
  using Entry = std::pair<Cost, uint32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  uint32_t target = node(of(problem_.target));
  rest_.resize(sketches_.size(), kUnreachable); // the cap may leave no way to it
  begin.resize(sketches_.size() + 1, begin.back());
  rest_[target] = {};
  queue.push({{}, target});
  while (!queue.empty()) {
    auto [cost, at] = queue.top();
    queue.pop();
    if (cost != rest_[at])
      continue;
    for (uint32_t i = begin[at]; i < begin[at + 1]; ++i) {
      const Edge &edge = edges_[by_end[i]];
      Cost more = cost + edge.cost;
      if (more < rest_[edge.from]) {
        rest_[edge.from] = more;
        queue.push({more, edge.from});
      }
    }
  }
  edges_.clear();
}

} // namespace spmd::rules::redistribute
