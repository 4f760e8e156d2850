// The table of transitions against its meaning: what each row makes of the data, and its backward
// as the adjoint of its forward, on exact integers.
#include "tests/property/transition_meaning.h"
#include "tests/unit/catch.h"

namespace spmd::property {
namespace {

using ir::Kind;
using rules::Transition;

constexpr unsigned kDraws = 3; // of random data per call

// Reduced read as R, and R and P exchanged: the kind of a gradient.
Kind plain(Kind kind) { return kind == Kind::Reduced ? Kind::Replicate : kind; }
Kind dual_kind(Kind kind) { return ir::info(kind).dual; }

bool same_meaning(const Transition &a, const Transition &b) {
  return plain(a.src) == plain(b.src) && plain(a.dst) == plain(b.dst) &&
         a.collective == b.collective && a.local_step == b.local_step && a.layouts == b.layouts;
}

// Calls `check(form, shape, random)` for every row, form, shape and number of ranks.
template <class Check> void for_each_call(Check check) {
  for (const Transition &row : rules::transitions())
    for (size_t ranks = 2; ranks <= 4; ++ranks)
      for (size_t dims = 1; dims <= 2; ++dims) {
        std::mt19937 random(static_cast<uint32_t>(ranks * 7 + dims));
        for (const Form &form : forms_of(row, ranks, dims, random)) {
          INFO(print(row) << ", " << ranks << " ranks, " << (form.shard ? "shard of " : "stack on ")
                          << form.dim << ", join " << form.join << ", root " << form.root);
          for (unsigned draw = 0; draw < kDraws; ++draw)
            check(row, form, ranks, shape_for(row, form, ranks, dims), random);
        }
      }
}

} // namespace

TEST_CASE("every backward is a row of the table, of the dual kinds") {
  for (const Transition &row : rules::transitions()) {
    INFO(print(row));
    if (row.composed)
      continue;
    const Transition *dual = rules::dual_of(row);
    REQUIRE(dual);
    CHECK(dual->src == dual_kind(row.dst));
    CHECK(dual->dst == dual_kind(row.src));
    CHECK(dual->layouts == row.layouts);
  }
}

TEST_CASE("the backward of the backward is the row, Reduced read as R") {
  for (const Transition &row : rules::transitions()) {
    INFO(print(row));
    if (row.composed)
      continue;
    const Transition *back = rules::dual_of(*rules::dual_of(row));
    REQUIRE(back);
    // convert and reinterpret are two names of one row where they keep both value and bytes.
    CHECK(same_meaning(row, *back));
    if (row.collective != rules::Collective::None || row.local_step != rules::LocalStep::None)
      CHECK(back->op == row.op);
  }
}

TEST_CASE("a composed row goes by way of R") {
  for (const Transition &row : rules::transitions()) {
    if (!row.composed)
      continue;
    INFO(print(row));
    auto [first, second] = rules::parts_of(row);
    REQUIRE(first);
    REQUIRE(second);
    CHECK(first->dst == Kind::Replicate);
    CHECK(second->src == Kind::Replicate);
    CHECK(row.collective == first->collective);
  }
}

TEST_CASE("rows are distinct and names are known") {
  llvm::ArrayRef<Transition> rows = rules::transitions();
  for (const Transition &row : rows) {
    INFO(print(row));
    CHECK(rules::find_transition_op(row.name()) == row.op);
    CHECK(rules::find_transition(row.op, row.src, row.dst) == &row);
  }
}

TEST_CASE("each row does to the data what its specification does to their meaning") {
  for_each_call([](const Transition &row, const Form &form, size_t ranks,
                   const std::vector<int> &shape, std::mt19937 &random) {
    Ranks x = random_ranks(row.src, ranks, shape, random);
    Ranks y = execute(row, form, x);
    REQUIRE(upholds(row.dst, y));
    Meaning meant = specify(row, form, ranks, denote(row.src, x));
    REQUIRE(!meant.pieces.empty());
    CHECK(denote(row.dst, y) == meant);
  });
}

TEST_CASE("each backward is the adjoint of its forward") {
  for_each_call([](const Transition &row, const Form &form, size_t ranks,
                   const std::vector<int> &shape, std::mt19937 &random) {
    Ranks x = random_ranks(row.src, ranks, shape, random);
    Ranks y = execute(row, form, x);
    Ranks g = random_ranks(dual_kind(row.dst), ranks, y[0].shape, random);
    Ranks back = execute_backward(row, form, g);
    REQUIRE(back[0].shape == shape);
    REQUIRE(upholds(dual_kind(row.src), back));
    CHECK(pairing(row.dst, y, g) == pairing(row.src, x, back));
  });
}

TEST_CASE("the backward of an average divides by the number of ranks too") {
  for_each_call([](const Transition &row, const Form &form, size_t ranks,
                   const std::vector<int> &shape, std::mt19937 &random) {
    if (row.src != Kind::Partial)
      return;
    Ranks x = random_ranks(row.src, ranks, shape, random);
    for (Tensor &each : x)
      each = times(each, static_cast<int64_t>(ranks));
    Ranks y = execute(row, form, x, true);
    Ranks g = random_ranks(dual_kind(row.dst), ranks, y[0].shape, random);
    for (Tensor &each : g)
      each = times(each, static_cast<int64_t>(ranks));
    Ranks back = execute_backward(row, form, g, true);
    CHECK(pairing(row.dst, y, g) == pairing(row.src, x, back));
    Meaning whole = specify(row, form, ranks, denote(row.src, x));
    for (Tensor &piece : whole.pieces)
      piece = divided(piece, static_cast<int64_t>(ranks));
    CHECK(denote(row.dst, y) == whole);
  });
}

// That a finding is deserved: the rows that only experts may use change the value, or leave the
// gradient on one rank where each rank should hold it or a share.
TEST_CASE("a row that repeats or scales the value is marked expert") {
  std::mt19937 random(5);
  for (const Transition &row : rules::transitions()) {
    if (row.collective != rules::Collective::None || row.layouts != rules::Layouts::Plain ||
        row.src == Kind::Varying || row.dst != Kind::Partial)
      continue;
    INFO(print(row));
    Form form;
    Ranks x = random_ranks(row.src, 3, {2}, random);
    bool keeps = denote(row.dst, execute(row, form, x)).pieces == denote(row.src, x).pieces;
    CHECK((keeps || row.expert));
  }
}

} // namespace spmd::property
