// Moves between states.
#include "rules/redistribute/search/state.h"

#include "ir/support/store.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace spmd::rules::redistribute {

Spec::Spec(const State &state, unsigned axis_count, unsigned rank) {
  for (unsigned axis = 0; axis < axis_count; ++axis)
    if (unsigned dim = state.dim(axis); dim < rank) {
      axes[dim][state.place(axis)] = static_cast<uint8_t>(axis);
      ++count[dim];
    }
}

int64_t Problem::product_of(Axes axes) const {
  int64_t ranks = 1;
  for (; axes; axes &= static_cast<Axes>(axes - 1))
    ranks = times_ranks(ranks, sizes[first(axes)]);
  return ranks;
}

void Problem::prepare() {
  constexpr unsigned kFewAxes = 8;
  if (axis_count() > kFewAxes)
    return;
  int64_t elements = 1;
  for (int64_t extent : extents)
    elements *= extent;
  for (unsigned set = 0; set <= all(); ++set) {
    products.push_back(product_of(static_cast<Axes>(set)));
    if (even)
      blocks.push_back(elements / products.back());
  }
}

// ceil(ceil(n / a) / b) is ceil(n / (a * b)): the order of the axes does not matter to the longest.
int64_t block_of(const Problem &problem, const State &state, unsigned dim) {
  int64_t ranks = 1;
  for (unsigned axis = 0; axis < problem.sizes.size(); ++axis)
    if (state.dim(axis) == dim)
      ranks = times_ranks(ranks, problem.sizes[axis]);
  return (problem.extents[dim] + ranks - 1) / ranks;
}

int64_t elements_of(const Problem &problem, const State &state) {
  // Asked for every move.
  if (state.sharding < problem.blocks.size())
    return problem.blocks[state.sharding];
  int64_t elements = 1;
  for (unsigned dim = 0; dim < problem.rank(); ++dim)
    elements *= problem.even ? problem.extents[dim] : block_of(problem, state, dim);
  return problem.even ? elements / problem.ranks_of(state.sharding) : elements;
}

uint64_t hash_of(const State &state) {
  return ir::mix(ir::mix(state.dims, state.order), state.partial | state.invariant << 16);
}

namespace {

constexpr size_t kMostOrders = 5000; // reorders and scatters from one state

class Generator {
public:
  Generator(const Problem &problem, const State &state, llvm::SmallVectorImpl<Move> &moves)
      : problem_(problem), state_(state), spec_(state, problem.axis_count(), problem.rank()),
        moves_(moves), replicated_(problem.replicated(state)) {}

  bool run(bool reordering) {
    slices();
    gather(0, state_, 0);
    exchanges();
    reduces();
    additions();
    if (problem_.has_invariant)
      converts();
    most_ = moves_.size() + kMostOrders;
    scatters();
    if (problem_.even && reordering)
      reorders();
    return moves_.size() < most_;
  }

private:
  bool divides(const State &after, unsigned dim) const {
    if (!problem_.even)
      return true;
    int64_t ranks = 1;
    for (unsigned axis = 0; axis < problem_.sizes.size(); ++axis)
      if (after.dim(axis) == dim)
        ranks = times_ranks(ranks, problem_.sizes[axis]);
    return problem_.extents[dim] % ranks == 0;
  }
  void add(Form form, const State &after) {
    if (bytes_of(problem_, after) <= problem_.cap)
      moves_.push_back({form, after});
  }
  // What was sharded or partial becomes R, and where these differ I as well.
  void add_replicated(Form form, State after, Axes freed) {
    add(form, after);
    if (!problem_.has_invariant)
      return;
    after.invariant |= freed;
    add(form, after);
  }

  void slices() {
    for (Axes left = replicated_; left; left &= static_cast<Axes>(left - 1))
      for (unsigned dim = 0; dim < problem_.rank(); ++dim) {
        State after = state_;
        after.shard(first(left), dim, spec_.count[dim]);
        if (divides(after, dim))
          add(Form::Slice, after);
      }
  }

  // Trailing axes of any dimensions together.
  void gather(unsigned dim, State after, Axes freed) {
    if (dim == problem_.rank()) {
      if (freed)
        add_replicated(Form::Gather, after, freed);
      return;
    }
    gather(dim + 1, after, freed);
    if (!problem_.even && freed)
      return;
    llvm::ArrayRef<uint8_t> axes = spec_.of(dim);
    for (size_t n = 1; n <= axes.size(); ++n) {
      unsigned axis = axes[axes.size() - n];
      after.free(axis);
      freed |= one(axis);
      if (problem_.even || n == 1 || n == axes.size())
        gather(dim + 1, after, freed);
    }
  }

  void exchanges() {
    for (unsigned from = 0; from < problem_.rank(); ++from) {
      llvm::ArrayRef<uint8_t> axes = spec_.of(from);
      for (size_t n = 1; n <= axes.size(); ++n) {
        if (!problem_.even && n != 1 && n != axes.size())
          continue;
        for (unsigned to = 0; to < problem_.rank(); ++to) {
          if (to == from)
            continue;
          State after = state_;
          unsigned place = spec_.count[to];
          for (uint8_t axis : axes.take_back(n))
            after.shard(axis, to, place++);
          if (divides(after, to))
            add(Form::AllToAll, after);
        }
      }
    }
  }

  // Any spec with the same local shape over the same number of ranks.
  void reorders() {
    State bare = state_;
    llvm::SmallVector<int64_t, 4> wanted;
    for (unsigned dim = 0; dim < problem_.rank(); ++dim) {
      int64_t ranks = 1;
      for (uint8_t axis : spec_.of(dim)) {
        ranks = times_ranks(ranks, problem_.sizes[axis]);
        bare.free(axis);
      }
      wanted.push_back(ranks);
    }
    Axes free = without(problem_.all(), state_.partial);
    bare.invariant = 0;
    fill(wanted, 0, wanted.empty() ? 1 : wanted[0], 0, bare, free);
  }
  void fill(llvm::ArrayRef<int64_t> wanted, unsigned dim, int64_t left, unsigned place,
            const State &so_far, Axes free) {
    if (moves_.size() >= most_)
      return;
    while (left == 1) {
      if (++dim >= wanted.size())
        return reordered(so_far);
      left = wanted[dim];
      place = 0;
    }
    for (Axes rest = free; rest; rest &= static_cast<Axes>(rest - 1)) {
      unsigned axis = first(rest);
      if (left % problem_.sizes[axis])
        continue;
      State next = so_far;
      next.shard(axis, dim, place);
      fill(wanted, dim, left / problem_.sizes[axis], place + 1, next, without(free, one(axis)));
    }
  }
  void reordered(State after) {
    if (after.dims == state_.dims && after.order == state_.order)
      return;
    Axes now = problem_.replicated(after);
    Axes freed = without(now, replicated_), consumed = without(replicated_, now);
    if (freed & problem_.owned)
      return;
    after.invariant = static_cast<Axes>(state_.invariant & now);
    // Freed axes are of the one kind that the consumed ones had.
    Axes invariant = consumed & state_.invariant;
    if (invariant && invariant != consumed)
      return;
    if (invariant)
      after.invariant |= freed;
    moves_.push_back({Form::Reorder, after});
  }

  bool agree(Axes axes) const {
    uint8_t combiner = problem_.combiners[first(axes)];
    for (; axes; axes &= static_cast<Axes>(axes - 1))
      if (problem_.combiners[first(axes)] != combiner)
        return false;
    return true;
  }
  void reduces() {
    for (Axes set = state_.partial; set; set = static_cast<Axes>((set - 1) & state_.partial)) {
      if (!agree(set))
        continue;
      State after = state_;
      after.partial = without(after.partial, set);
      add_replicated(Form::Reduce, after, set);
    }
  }

  void scatters() { scatter(state_, spec_.count, 0); }
  void scatter(const State &so_far, std::array<uint8_t, kMostDims> count, Axes done) {
    if ((!problem_.even && done) || moves_.size() >= most_)
      return;
    // Axes enter the dimensions in turn, each dimension in any order: no outcome is met twice.
    unsigned from = 0;
    if (done)
      for (Axes left = done; left; left &= static_cast<Axes>(left - 1))
        from = std::max(from, so_far.dim(first(left)));
    for (Axes left = so_far.partial; left; left &= static_cast<Axes>(left - 1)) {
      unsigned axis = first(left);
      if (!agree(done | one(axis)))
        continue;
      for (unsigned dim = from; dim < problem_.rank(); ++dim) {
        State after = so_far;
        after.shard(axis, dim, count[dim]);
        if (!divides(after, dim))
          continue;
        add(Form::Scatter, after);
        ++count[dim];
        scatter(after, count, done | one(axis));
        --count[dim];
      }
    }
  }

  void additions() {
    for (Axes left = replicated_ & problem_.may_keep; left; left &= static_cast<Axes>(left - 1)) {
      State after = state_;
      after.partial |= one(first(left));
      after.invariant = without(after.invariant, one(first(left)));
      add(Form::Keep, after);
    }
    for (unsigned dim = 0; dim < problem_.rank(); ++dim) {
      llvm::ArrayRef<uint8_t> axes = spec_.of(dim);
      if (axes.empty() || !has(problem_.may_zero_fill, axes.back()))
        continue;
      State after = state_;
      after.free(axes.back());
      after.partial |= one(axes.back());
      add(Form::Zeros, after);
    }
  }

  void converts() {
    Axes sides[] = {without(replicated_, state_.invariant),
                    static_cast<Axes>(replicated_ & state_.invariant)};
    for (Axes side : sides)
      for (Axes set = side; set; set = static_cast<Axes>((set - 1) & side)) {
        State after = state_;
        after.invariant ^= set;
        add(Form::Convert, after);
      }
  }

  const Problem &problem_;
  const State &state_;
  Spec spec_;
  llvm::SmallVectorImpl<Move> &moves_;
  Axes replicated_;
  size_t most_ = 0;
};

} // namespace

bool moves_from(const Problem &problem, const State &state, llvm::SmallVectorImpl<Move> &moves,
                bool reorders) {
  return Generator(problem, state, moves).run(reorders);
}

llvm::SmallVector<Move, 4> fallback_moves(const Problem &problem) {
  llvm::SmallVector<Move, 4> moves;
  State at = problem.source;
  const State &target = problem.target;
  auto go = [&](Form form, const State &after) {
    moves.push_back({form, after});
    at = after;
  };
  while (at.partial) {
    State after = at;
    for (Axes left = at.partial; left; left &= static_cast<Axes>(left - 1))
      if (problem.combiners[first(left)] == problem.combiners[first(at.partial)])
        after.partial = without(after.partial, one(first(left)));
    go(Form::Reduce, after);
  }
  Spec was(at, problem.axis_count(), problem.rank());
  for (unsigned dim = 0; dim < problem.rank(); ++dim) {
    State after = at;
    for (uint8_t axis : was.of(dim))
      after.free(axis);
    if (after != at)
      go(Form::Gather, after);
  }
  State after = at;
  after.invariant =
      static_cast<Axes>(at.invariant & without(problem.all(), problem.replicated(target)));
  after.invariant |= target.invariant;
  for (Axes side : {without(after.invariant, at.invariant), without(at.invariant, after.invariant)})
    if (side) {
      State next = at;
      next.invariant ^= side;
      go(Form::Convert, next);
    }
  Spec is(target, problem.axis_count(), problem.rank());
  for (unsigned dim = 0; dim < problem.rank(); ++dim)
    for (unsigned place = 0; place < is.count[dim]; ++place) {
      State next = at;
      next.shard(is.axes[dim][place], dim, place);
      go(Form::Slice, next);
    }
  for (Axes left = target.partial; left; left &= static_cast<Axes>(left - 1)) {
    State next = at;
    next.partial |= one(first(left));
    next.invariant = without(next.invariant, one(first(left)));
    go(Form::Keep, next);
  }
  return moves;
}

namespace {

// In each dimension what stands behind the axes that neither end changes.
MovedAxes reordered_axes(const Problem &problem, const State &before, const State &after) {
  Spec was(before, problem.axis_count(), problem.rank()),
      is(after, problem.axis_count(), problem.rank());
  Axes named = 0;
  MovedAxes moved;
  for (unsigned dim = 0; dim < problem.rank(); ++dim) {
    size_t same = 0, most = std::min<size_t>(was.count[dim], is.count[dim]);
    while (same < most && was.axes[dim][same] == is.axes[dim][same])
      ++same;
    for (uint8_t axis : is.of(dim).drop_front(same)) {
      moved.push_back({axis, static_cast<uint8_t>(before.dim(axis)), static_cast<uint8_t>(dim)});
      named |= one(axis);
    }
  }
  for (unsigned axis = 0; axis < problem.axis_count(); ++axis)
    if (before.sharded(axis) && !after.sharded(axis) && !has(named, axis))
      moved.push_back({static_cast<uint8_t>(axis), static_cast<uint8_t>(before.dim(axis)), kNoDim});
  return moved;
}

// The axes of a set whose positions within their dimensions are those of `ends`, in the first order
// in which each dimension has its own.
void take_in_order(Axes set, const State &ends, llvm::function_ref<void(unsigned)> take) {
  while (set) {
    unsigned next = kMostAxes;
    for (Axes left = set; left && next == kMostAxes; left &= static_cast<Axes>(left - 1)) {
      unsigned axis = first(left);
      bool outermost = true;
      for (Axes other = set; other; other &= static_cast<Axes>(other - 1)) {
        unsigned than = first(other);
        outermost &= ends.dim(than) != ends.dim(axis) || ends.place(than) >= ends.place(axis);
      }
      if (outermost)
        next = axis;
    }
    take(next);
    set = without(set, one(next));
  }
}

} // namespace

MovedAxes moved_axes(const Problem &problem, const State &before, const Move &move) {
  const State &after = move.after;
  if (move.form == Form::Reorder)
    return reordered_axes(problem, before, after);
  Axes set = 0;
  for (unsigned axis = 0; axis < problem.axis_count(); ++axis) {
    bool differs = before.dim(axis) != after.dim(axis) ||
                   has(before.partial ^ after.partial, axis) ||
                   (move.form == Form::Convert && has(before.invariant ^ after.invariant, axis));
    if (differs)
      set |= one(axis);
  }
  MovedAxes moved;
  bool leaves = move.form == Form::Gather || move.form == Form::AllToAll;
  auto take = [&](unsigned axis) {
    moved.push_back({static_cast<uint8_t>(axis), static_cast<uint8_t>(before.dim(axis)),
                     static_cast<uint8_t>(after.dim(axis))});
  };
  if (move.form != Form::Gather) {
    take_in_order(set, leaves ? before : after, take);
    return moved;
  }
  // A gather is described dimension by dimension.
  Spec spec(before, problem.axis_count(), problem.rank());
  for (unsigned dim = 0; dim < problem.rank(); ++dim)
    for (uint8_t axis : spec.of(dim))
      if (has(set, axis))
        take(axis);
  return moved;
}

// The longer one first, as in text: `scatter a:0 b:0; ..` stands before `scatter a:0; ..`.
static bool lists_before(const MovedAxes &x, const MovedAxes &y) {
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
    if (x[i] != y[i])
      return x[i] < y[i];
  return x.size() > y.size();
}

bool comes_before(const Problem &problem, const State &before, const Move &a, const Move &b) {
  if (a.form != b.form)
    return a.form < b.form;
  if (a.form == Form::Reorder) {
    Spec x(a.after, problem.axis_count(), problem.rank()),
        y(b.after, problem.axis_count(), problem.rank());
    for (unsigned dim = 0; dim < problem.rank(); ++dim)
      if (x.of(dim) != y.of(dim))
        return std::lexicographical_compare(x.of(dim).begin(), x.of(dim).end(), y.of(dim).begin(),
                                            y.of(dim).end());
    return a.after.invariant < b.after.invariant;
  }
  MovedAxes x = moved_axes(problem, before, a), y = moved_axes(problem, before, b);
  if (x != y)
    return lists_before(x, y);
  return a.after.invariant < b.after.invariant;
}

} // namespace spmd::rules::redistribute
