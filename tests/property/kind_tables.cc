// The tables of sum, product and nonlinear function against the denotation: every entry that is
// accepted is sound on values and gradients, every one that is refused has a counterexample for
// each kind that the result could be given. One axis of two to four ranks, one number per rank,
// exact.
#include "rules/kinds/tables.h"

#include "tests/unit/catch.h"

#include <algorithm>
#include <random>
#include <vector>

namespace spmd::property {
namespace {

using rules::TermKind;

constexpr TermKind kKinds[] = {TermKind::R, TermKind::I, TermKind::V, TermKind::P};
constexpr TermKind kOperands[] = {TermKind::R, TermKind::I, TermKind::V, TermKind::P,
                                  TermKind::Number};
constexpr const char *kWords[] = {"R", "I", "V", "P", "number", "none"};
constexpr unsigned kDraws = 24;

const char *word(TermKind kind) { return kWords[static_cast<unsigned>(kind)]; }

// One number per rank.
using Numbers = std::vector<int64_t>;

int64_t sum(const Numbers &x) {
  int64_t total = 0;
  for (int64_t each : x)
    total += each;
  return total;
}

// What is meant, one entry per rank; where the ranks mean one number, it stands on each.
Numbers meaning(TermKind kind, const Numbers &x) {
  return kind == TermKind::P ? Numbers(x.size(), sum(x)) : x;
}
// Whether the data uphold the claim, and then mean `meant`.
bool denotes(TermKind kind, const Numbers &x, const Numbers &meant) {
  bool same = kind == TermKind::R || kind == TermKind::I;
  return (!same || x == Numbers(x.size(), x[0])) && meaning(kind, x) == meant;
}

class Draw {
public:
  Draw(size_t ranks, unsigned seed) : ranks_(ranks), random_(seed) {}

  int64_t number() { return static_cast<int64_t>(random_() % 23) - 11; }
  Numbers list() {
    Numbers x(ranks_);
    for (int64_t &each : x)
      each = number();
    return x;
  }
  // Data that uphold a claim of this kind.
  Numbers value(TermKind kind) {
    bool varies = kind == TermKind::V || kind == TermKind::P;
    return varies ? list() : Numbers(ranks_, number());
  }
  // What a result of this kind receives for a gradient of what it means: pieces that sum to it (R),
  // the gradient itself on each rank (I, P), each piece's own (V).
  Numbers gradient(TermKind kind, const Numbers &meant) {
    if (kind != TermKind::R)
      return meant;
    Numbers pieces = list();
    pieces[0] += meant[0] - sum(pieces);
    return pieces;
  }

private:
  size_t ranks_;
  std::mt19937 random_;
};

// Whether `g` on the ranks is right for an operand of this kind whose meaning has the gradient
// `meant`: one entry per rank, to be summed where the operand means one number.
bool is_gradient(TermKind kind, const Numbers &g, const Numbers &meant) {
  if (kind == TermKind::V)
    return g == meant;
  if (kind == TermKind::R)
    return sum(g) == sum(meant);
  return g == Numbers(g.size(), sum(meant));
}

// An op of two operands, of what they hold or of what they mean, and its partial derivatives.
struct Op {
  int64_t (*value)(int64_t, int64_t);
  int64_t (*left)(int64_t, int64_t);
  int64_t (*right)(int64_t, int64_t);
};
constexpr Op kAdd = {[](int64_t a, int64_t b) { return a + b; },
                     [](int64_t, int64_t) { return int64_t(1); },
                     [](int64_t, int64_t) { return int64_t(1); }};
constexpr Op kMultiply = {[](int64_t a, int64_t b) { return a * b; },
                          [](int64_t, int64_t b) { return b; },
                          [](int64_t a, int64_t) { return a; }};
// Of the first operand alone: odd and even powers, so that no symmetry helps.
constexpr Op kNonlinear = {[](int64_t a, int64_t) { return a * a * a + 2 * a * a - 3; },
                           [](int64_t a, int64_t) { return 3 * a * a + 4 * a; },
                           [](int64_t, int64_t) { return int64_t(0); }};

Numbers map(int64_t (*f)(int64_t, int64_t), const Numbers &a, const Numbers &b) {
  Numbers y(a.size());
  for (size_t r = 0; r < y.size(); ++r)
    y[r] = f(a[r], b[r]);
  return y;
}
Numbers product(const Numbers &a, const Numbers &b) { return map(kMultiply.value, a, b); }

// Whether the result may be called `result`, on one draw of data: the ranks compute without
// communication, in both directions, and are compared with the op on what the operands mean.
bool holds(const Op &op, TermKind a, TermKind b, TermKind result, size_t ranks, unsigned seed) {
  Draw draw(ranks, seed);
  Numbers x = draw.value(a), z = draw.value(b);
  Numbers x_meant = meaning(a, x), z_meant = meaning(b, z);
  Numbers y_meant = map(op.value, x_meant, z_meant);
  if (!denotes(result, map(op.value, x, z), y_meant))
    return false;
  // A result that means one number has one gradient; as a list it has one per rank.
  bool list = result == TermKind::V;
  Numbers g_meant = list ? draw.list() : Numbers(ranks, draw.number());
  Numbers g = draw.gradient(result, g_meant);
  // Of the meaning: a number that every entry of a list was made from receives their sum.
  if (!list)
    std::fill(g_meant.begin() + 1, g_meant.end(), 0);
  auto receives = [&](TermKind kind, auto slope) {
    return kind == TermKind::Number || is_gradient(kind, product(map(slope, x, z), g),
                                                   product(map(slope, x_meant, z_meant), g_meant));
  };
  return receives(a, op.left) && receives(b, op.right);
}

bool always_holds(const Op &op, TermKind a, TermKind b, TermKind result) {
  for (size_t ranks = 2; ranks <= 4; ++ranks)
    for (unsigned seed = 0; seed < kDraws; ++seed)
      if (!holds(op, a, b, result, ranks, seed))
        return false;
  return true;
}

// A counterexample at every number of ranks, so that none rests on a coincidence of one.
bool always_refuted(const Op &op, TermKind a, TermKind b, TermKind result) {
  for (size_t ranks = 2; ranks <= 4; ++ranks) {
    bool refuted = false;
    for (unsigned seed = 0; seed < kDraws && !refuted; ++seed)
      refuted = !holds(op, a, b, result, ranks, seed);
    if (!refuted)
      return false;
  }
  return true;
}

void check_entry(const Op &op, TermKind a, TermKind b, TermKind entry) {
  INFO(word(a) << " with " << word(b) << " -> " << word(entry));
  if (entry == TermKind::Number)
    return;
  if (entry != TermKind::None) {
    CHECK(always_holds(op, a, b, entry));
    return;
  }
  for (TermKind candidate : kKinds) {
    INFO("as " << word(candidate));
    CHECK(always_refuted(op, a, b, candidate));
  }
}

} // namespace

TEST_CASE("the sum table is sound and refuses nothing that is") {
  for (TermKind a : kOperands)
    for (TermKind b : kOperands) {
      check_entry(kAdd, a, b, rules::sum(a, b));
      CHECK(rules::sum(a, b) == rules::sum(b, a));
    }
}

TEST_CASE("the product table is sound and refuses nothing that is") {
  for (TermKind a : kOperands)
    for (TermKind b : kOperands) {
      check_entry(kMultiply, a, b, rules::product(a, b));
      CHECK(rules::product(a, b) == rules::product(b, a));
    }
}

TEST_CASE("a nonlinear function passes all but a partial operand") {
  for (TermKind a : kKinds)
    check_entry(kNonlinear, a, TermKind::Number, rules::nonlinear(a));
}

TEST_CASE("sums and products of kinds do not depend on how they are bracketed") {
  for (TermKind a : kOperands)
    for (TermKind b : kOperands)
      for (TermKind c : kOperands) {
        INFO(word(a) << " " << word(b) << " " << word(c));
        CHECK(rules::sum(rules::sum(a, b), c) == rules::sum(a, rules::sum(b, c)));
        CHECK(rules::product(rules::product(a, b), c) == rules::product(a, rules::product(b, c)));
      }
}

// A table that differs from the product in one cell: what is evaluated is the table.
constexpr rules::KindTable kAltered = [] {
  rules::KindTable table = rules::kProduct;
  table[2][2] = rules::Clash::PartialWithVarying;
  return table;
}();

template <const rules::KindTable &table> void check_planes() {
  constexpr TermKind kAll[] = {TermKind::R, TermKind::I,      TermKind::V,
                               TermKind::P, TermKind::Number, TermKind::None};
  // Three axes, so that each cell is evaluated beside others.
  for (TermKind a : kAll)
    for (TermKind b : kAll)
      for (TermKind other : kAll) {
        const TermKind left[] = {a, other, b}, right[] = {b, a, other};
        rules::KindPlanes x, y;
        for (uint8_t axis = 0; axis < 3; ++axis) {
          if (left[axis] != TermKind::Number)
            x[left[axis]] |= ir::AxisId{axis};
          if (right[axis] != TermKind::Number)
            y[right[axis]] |= ir::AxisId{axis};
        }
        const rules::KindPlanes made = rules::combine<table>(x, y);
        for (uint8_t axis = 0; axis < 3; ++axis) {
          INFO(word(left[axis]) << " with " << word(right[axis]));
          for (TermKind kind : kAll)
            CHECK(made[kind].contains(ir::AxisId{axis}) ==
                  (rules::look_up(table, left[axis], right[axis]) == kind));
        }
      }
}

TEST_CASE("a table evaluated over sets of axes is the table on each of them") {
  check_planes<rules::kSum>();
  check_planes<rules::kProduct>();
  check_planes<kAltered>();
}

TEST_CASE("an operand that nothing differentiates may be R or I") {
  // I with R: the values are right, and whatever the result is called, one gradient is not.
  CHECK(!always_holds(kAdd, TermKind::R, TermKind::I, TermKind::R));
  CHECK(!always_holds(kAdd, TermKind::R, TermKind::I, TermKind::I));
  CHECK(always_holds(kAdd, TermKind::Number, TermKind::I, TermKind::I));
  CHECK(always_holds(kMultiply, TermKind::Number, TermKind::R, TermKind::R));
}

} // namespace spmd::property
