// A* over states (Hart, Nilsson, Raphael 1968). Costs are never negative and the heuristic is never
// too high, so that states are final once everything that could still be cheaper has been expanded;
// with partial axes a state may be opened again. A second pass over the equally cheap sequences
// picks one of them.
#include "rules/redistribute/search/search.h"

#include "rules/redistribute/search/sketch.h"

#include "ir/support/check.h"
#include "ir/support/store.h"

#include "llvm/ADT/STLExtras.h"

#include <queue>

namespace spmd::rules::redistribute {
namespace {

constexpr uint32_t kNone = ~0u;
// States of one depth that are kept where the budget ends. Nothing is proved from there on; time is
// bounded by this, the moves of a state, and the steps of a sequence.
constexpr unsigned kBeamWidth = 64;

class Search {
public:
  Search(const Problem &problem, uint32_t budget, uint64_t most_moves, bool guided)
      : problem_(problem), heuristic_(problem), budget_(budget), most_moves_(most_moves),
        guided_(guided) {
    // Sketches of many axes take longer than a small budget.
    constexpr unsigned kMostSketched = 6;
    bool small = most_moves < kMostMoves && problem.axis_count() > kMostSketched;
    if (!guided || small || !Sketches::serves(problem))
      return;
    sketches_.emplace(problem);
    tried_ += sketches_->moves();
  }

  Found run();
  std::optional<Cost> exhaust();

private:
  struct Node {
    State state;
    Cost so_far = kUnreachable, rest = {};
    uint32_t way = kNone;   // first of the equally cheap ways that lead here
    bool useful = false;    // it lies on a cheapest sequence
    bool reordered = false; // one of these ways ends with a reorder
  };
  struct Way {
    uint32_t from, next;
  };
  struct Entry {
    Cost total, so_far;
    uint32_t node;
    // The queue gives the largest: the cheapest, then the one that was made first.
    friend bool operator<(const Entry &a, const Entry &b) {
      return a.total != b.total ? b.total < a.total : b.node < a.node;
    }
  };

  Cost rest(const State &state) const {
    return sketches_ ? sketches_->rest(state) : heuristic_(state);
  }
  // None if nothing that is cheap enough can come of it.
  uint32_t node(const State &state, const Cost &so_far);
  // What some sequence costs that always takes the move that promises most; kUnreachable if it
  // leads nowhere.
  Cost some_way();
  // Calls `improved` with the index of each state to which the way from this one is the cheapest
  // yet.
  template <class Improved> void expand(uint32_t from, Improved improved);
  void push(uint32_t index) {
    const Node &node = nodes_[index];
    queue_.push({node.so_far + node.rest, node.so_far, index});
  }
  bool reached() const { return target_ != kNone && nodes_[target_].so_far != kUnreachable; }
  void beam();
  void mark();
  llvm::SmallVector<Move, 4> first_sequence();

  const Problem &problem_;
  Heuristic heuristic_;
  std::optional<Sketches> sketches_;
  uint32_t budget_, expanded_ = 0;
  uint64_t most_moves_;
  uint64_t tried_ = 0;   // moves
  bool complete_ = true; // all moves of each state were looked at
  bool guided_;
  Cost limit_ = kUnreachable; // of what is known to lead to the target
  uint32_t target_ = kNone;
  std::vector<Node> nodes_;
  std::vector<Way> ways_;
  ir::IndexTable table_;
  std::priority_queue<Entry> queue_;
  llvm::SmallVector<Move, 64> moves_;
};

uint32_t Search::node(const State &state, const Cost &so_far) {
  // Sketches are quicker than the table.
  Cost left = sketches_ ? sketches_->rest(state) : Cost{};
  if (left == kUnreachable || limit_ < so_far + left)
    return kNone;
  uint32_t &slot =
      table_.find(hash_of(state), [&](uint32_t i) { return nodes_[i].state == state; });
  if (slot != ir::IndexTable::kEmpty)
    return slot;
  if (guided_ && !sketches_)
    left = heuristic_(state);
  uint32_t index = slot = static_cast<uint32_t>(nodes_.size());
  table_.inserted();
  nodes_.push_back({.state = state, .rest = left});
  if (state == problem_.target)
    target_ = index;
  return index;
}

Cost Search::some_way() {
  constexpr unsigned kMostSteps = 16;
  State at = problem_.source;
  Cost so_far;
  for (unsigned i = 0; i < kMostSteps; ++i) {
    moves_.clear();
    moves_from(problem_, at, moves_);
    const Move *best = nullptr;
    Cost least = kUnreachable, reached = kUnreachable;
    for (const Move &move : moves_) {
      Cost cost = so_far + cost_of(problem_, price_of(problem_, at, move));
      if (!(cost < least))
        continue;
      if (Cost total = cost + rest(move.after); total < least) {
        least = total;
        reached = cost;
        best = &move;
      }
    }
    if (!best)
      break;
    so_far = reached;
    at = best->after;
    if (at == problem_.target)
      return so_far;
  }
  return kUnreachable;
}

template <class Improved> void Search::expand(uint32_t from, Improved improved) {
  ++expanded_;
  const State before = nodes_[from].state;
  const Cost so_far = nodes_[from].so_far;
  moves_.clear();
  // Two reorders are one, at half the price; where I differs from R that one may not be allowed.
  bool again = guided_ && !problem_.has_invariant && nodes_[from].reordered;
  if (!again && guided_ && problem_.prices.beta.empty()) {
    Exchange reorder{.form = Form::Reorder};
    reorder.piece = static_cast<uint64_t>(elements_of(problem_, before));
    again = limit_ < so_far + cost_of(problem_, price_of(problem_, reorder));
  }
  complete_ &= moves_from(problem_, before, moves_, !again);
  tried_ += moves_.size();
  for (const Move &move : moves_) {
    Cost cost = so_far + cost_of(problem_, price_of(problem_, before, move));
    if (limit_ < cost)
      continue;
    uint32_t to = node(move.after, cost);
    if (to == kNone || nodes_[to].so_far < cost || limit_ < cost + nodes_[to].rest)
      continue;
    Node &next = nodes_[to];
    bool better = cost < next.so_far;
    ways_.push_back({from, better ? kNone : next.way});
    next.way = static_cast<uint32_t>(ways_.size() - 1);
    next.so_far = cost;
    next.reordered = move.form == Form::Reorder || (!better && next.reordered);
    if (!better)
      continue;
    if (to == target_)
      limit_ = std::min(limit_, cost);
    improved(to);
  }
}

// The same moves from the best states of each depth, until what is left cannot be cheaper.
void Search::beam() {
  std::vector<uint32_t> level;
  for (; !queue_.empty() && level.size() < kBeamWidth; queue_.pop())
    if (!llvm::is_contained(level, queue_.top().node))
      level.push_back(queue_.top().node);
  auto total = [&](uint32_t i) { return nodes_[i].so_far + nodes_[i].rest; };
  while (!level.empty()) {
    std::vector<uint32_t> next;
    for (uint32_t from : level)
      expand(from, [&](uint32_t to) {
        if (!llvm::is_contained(next, to))
          next.push_back(to);
      });
    if (reached())
      llvm::erase_if(next, [&](uint32_t i) { return !(total(i) < nodes_[target_].so_far); });
    llvm::sort(next, [&](uint32_t a, uint32_t b) {
      return total(a) != total(b) ? total(a) < total(b) : a < b;
    });
    next.resize(std::min<size_t>(next.size(), kBeamWidth));
    level = std::move(next);
  }
}

// Many sequences cost the same, and which of them was found first depends on the heuristic. So that
// the plan does not, the choice is made afterwards, among all of them, by the order of moves. From
// the target back over all ways that are still the cheapest ones.
void Search::mark() {
  std::vector<uint32_t> left = {target_};
  nodes_[target_].useful = true;
  while (!left.empty()) {
    uint32_t at = left.back();
    left.pop_back();
    for (uint32_t way = nodes_[at].way; way != kNone; way = ways_[way].next)
      if (Node &from = nodes_[ways_[way].from]; !from.useful) {
        from.useful = true;
        left.push_back(ways_[way].from);
      }
  }
}

llvm::SmallVector<Move, 4> Search::first_sequence() {
  llvm::SmallVector<Move, 4> sequence;
  uint32_t at = 0;
  while (at != target_) {
    const State before = nodes_[at].state;
    moves_.clear();
    moves_from(problem_, before, moves_);
    const Move *best = nullptr;
    uint32_t best_to = kNone;
    for (const Move &move : moves_) {
      Cost cost = nodes_[at].so_far + cost_of(problem_, price_of(problem_, before, move));
      uint32_t to = node(move.after, cost);
      if (to == kNone || !nodes_[to].useful || nodes_[to].so_far != cost)
        continue;
      if (!best || comes_before(problem_, before, move, *best)) {
        best = &move;
        best_to = to;
      }
    }
    SPMD_CHECK(best, "a state on a cheapest sequence has no next one");
    sequence.push_back(*best);
    at = best_to;
  }
  return sequence;
}

Found Search::run() {
  Found found;
  found.proven = true;
  uint32_t source = node(problem_.source, {});
  if (source == kNone)
    return found;
  nodes_[source].so_far = {};
  // Whatever costs more than some way that is known is not worth a node: most moves are dropped
  // before they are looked up.
  limit_ = some_way();
  push(source);
  while (!queue_.empty()) {
    Entry entry = queue_.top();
    if (reached() && nodes_[target_].so_far < entry.total)
      break;
    if (expanded_ >= budget_ || tried_ >= most_moves_) {
      found.proven = false;
      if (most_moves_ >= kMostMoves)
        beam();
      break;
    }
    queue_.pop();
    // An entry is stale where a cheaper way was found since. No cheapest sequence goes on from the
    // target.
    if (entry.so_far == nodes_[entry.node].so_far && entry.node != target_)
      expand(entry.node, [&](uint32_t to) { push(to); });
  }
  found.proven &= complete_;
  found.expanded = expanded_;
  found.tried = tried_;
  found.reached = reached();
  if (!found.reached)
    return found;
  found.cost = nodes_[target_].so_far;
  mark();
  found.moves = first_sequence();
  return found;
}

std::optional<Cost> Search::exhaust() {
  uint32_t source = node(problem_.source, {});
  nodes_[source].so_far = {};
  std::vector<uint32_t> open = {source};
  while (!open.empty()) {
    std::vector<uint32_t> next;
    for (uint32_t from : open) {
      if (nodes_.size() > budget_ || tried_ > most_moves_)
        return std::nullopt;
      expand(from, [&](uint32_t to) { next.push_back(to); });
    }
    llvm::sort(next);
    next.erase(std::unique(next.begin(), next.end()), next.end());
    open = std::move(next);
  }
  return reached() ? nodes_[target_].so_far : kUnreachable;
}

} // namespace

Found search(const Problem &problem, uint32_t budget, uint64_t most_moves) {
  return Search(problem, budget, most_moves, true).run();
}

std::optional<Cost> exhaustive_cost(const Problem &problem, uint32_t budget, uint64_t most_moves) {
  return Search(problem, budget, most_moves, false).exhaust();
}

} // namespace spmd::rules::redistribute
