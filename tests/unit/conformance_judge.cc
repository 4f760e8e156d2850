// Every kind of claim, true and false; every mistake that is guessed.
#include "runtime/judge/conformance.h"
#include "runtime/judge/refutation.h"

#include "tests/unit/checked_programs.h"

#include <fmt/format.h>

using namespace spmd;
using namespace spmd::runtime;

namespace {

constexpr size_t kRanks = 4;

// One value of a type over four ranks; `want` as meant.
struct Case {
  std::string type;         // of an input f32[4] or as stated
  std::vector<Tensor> held; // per rank
  Meaning want;
  std::vector<Meaning> parts = {}; // of a step that adds up
  std::string earlier = {};        // the wanted value doubles as an earlier one where this is set
  double bound = 0;                // 0: exact
};

struct Outcome {
  Verdict verdict = Verdict::NotChecked;
  std::string finding, message, guess, notes;
  bool drift = false;
};

Outcome judged(const Case &test) {
  checker::CheckedProgram program = checked(
      fmt::format("trace {{ mode = local }}\nmesh m {{ tp = 4 }}\n%x = input {}", test.type));
  Observed observed{
      program.program().params[0].value, program.known(ir::ValueId{0}), {}, test.held};
  observed.known = program.known(observed.value);
  ReferenceValue wanted;
  wanted.meant = &test.want;
  wanted.exact = test.bound == 0;
  Meaning bound;
  for (const Tensor &piece : test.want.pieces)
    bound.pieces.push_back(
        reals(piece.dims, std::vector<double>(static_cast<size_t>(piece.size()), test.bound)));
  if (test.bound > 0)
    wanted.bound = &bound;
  wanted.parts = test.parts;
  wanted.acted = ir::AxisSet(ir::AxisId{0});
  Judgment judgment = judge(program.mutable_program(), observed, wanted);
  Outcome outcome;
  REQUIRE(judgment.claims.size() == 1);
  outcome.verdict = judgment.claims[0].verdict;
  if (judgment.refuted) {
    outcome.drift = judgment.refuted->drift;
    outcome.guess = judgment.refuted->guess;
    checker::Finding finding =
        finding_of(program.program(), observed, *judgment.refuted, {Tier::Real, 7, "spmdrun x"});
    outcome.finding = finding.info().name;
    outcome.message = message_of(program.program(), finding);
    checker::CheckResult none;
    for (const checker::Note &note : explain_finding(program.program(), none, finding))
      outcome.notes += note.text + "\n";
  }
  return outcome;
}

std::vector<Tensor> all(const Tensor &tensor) { return std::vector<Tensor>(kRanks, tensor); }
Meaning one(Tensor tensor) { return {{}, {std::move(tensor)}}; }
Meaning list(std::vector<Tensor> pieces) { return {ir::AxisSet(ir::AxisId{0}), std::move(pieces)}; }
Tensor zeros(Dims dims) { return counted(dims, 0); }

// Rank r holds 10 r + 1, 10 r + 2.
std::vector<Tensor> different() {
  std::vector<Tensor> held;
  for (size_t r = 0; r < kRanks; ++r)
    held.push_back(counted({2}, static_cast<double>(10 * r + 1)));
  return held;
}

} // namespace

TEST_CASE("conformance: replicate and invariant") {
  Tensor x = counted({2}, 1), other = counted({2}, 2);
  for (std::string kind : {"R", "I"}) {
    std::string finding = kind == "R" ? "replicate-refuted" : "invariant-refuted";
    CHECK(judged({"f32[2] " + kind, all(x), one(x)}).verdict == Verdict::Upheld);
    std::vector<Tensor> held = all(x);
    held[2] = other;
    Outcome differ = judged({"f32[2] " + kind, held, one(x)});
    CHECK(differ.verdict == Verdict::Refuted);
    CHECK(differ.finding == finding);
    CHECK(differ.message.find("its ranks hold different data") != std::string::npos);
    CHECK(differ.notes.find("(ranks 2)") != std::string::npos);
    Outcome wrong = judged({"f32[2] " + kind, all(other), one(x)});
    CHECK(wrong.finding == finding);
    CHECK(wrong.message.find("is not the reference value") != std::string::npos);
    CHECK(wrong.notes.find("at [0] 2 where the reference has 1") != std::string::npos);
    CHECK(wrong.notes.find("--until=%x") != std::string::npos);
  }
}

TEST_CASE("conformance: copies that differ by rounding drift") {
  Tensor x = counted({2}, 1), near = x;
  near.of<double>()[1] += 0x1p-20;
  std::vector<Tensor> held = all(x);
  held[1] = near;
  Outcome outcome = judged({"f32[2] R", held, one(x), {}, {}, 0x1p-18});
  CHECK(outcome.verdict == Verdict::Upheld);
  CHECK(outcome.drift);
  CHECK(outcome.finding == "replicas-drift");
  CHECK(judged({"f32[2] R", held, one(x), {}, {}, 0x1p-30}).finding == "replicate-refuted");
}

TEST_CASE("conformance: partial") {
  std::vector<Tensor> held = different();
  Tensor sum = reals({2}, {64, 68});
  CHECK(judged({"f32[2] P", held, one(sum)}).verdict == Verdict::Upheld);
  Outcome wrong = judged({"f32[2] P", held, one(counted({2}, 0))});
  CHECK(wrong.finding == "partial-refuted");
  CHECK(wrong.message.find("the sum of %x over tp") != std::string::npos);
  // Sums that rounding explains.
  CHECK(judged({"f32[2] P", held, one(reals({2}, {64.001, 68})), {}, {}, 0.01}).verdict ==
        Verdict::Upheld);
  // Of equal addends.
  Outcome more = judged({"f32[2] P", all(sum), one(sum)});
  CHECK(more.guess.find("4 times the reference everywhere") != std::string::npos);
}

TEST_CASE("conformance: lists, piece by piece") {
  std::vector<Tensor> held = different();
  CHECK(judged({"f32[2] V", held, list(held)}).verdict == Verdict::Upheld);
  std::vector<Tensor> wrong = held;
  wrong[3] = zeros({2});
  Outcome outcome = judged({"f32[2] V", wrong, list(held)});
  CHECK(outcome.finding == "shard-refuted");
  CHECK(outcome.notes.find("(ranks 3)") != std::string::npos);
  CHECK(outcome.notes.find("0 where the reference has 31") != std::string::npos);
}

TEST_CASE("conformance: shapes and element types") {
  std::vector<Tensor> held = all(counted({2}, 1));
  held[1] = counted({3}, 1);
  Outcome outcome = judged({"f32[2] R", held, one(held[0])});
  CHECK(outcome.finding == "shape-refuted");
  CHECK(outcome.message == "%x is f32[3] on rank 1, and f32[2] by its type");
  held[1] = counted({2}, 1, ir::DType::F64);
  CHECK(judged({"f32[2] R", held, one(held[0])}).finding == "shape-refuted");
}

TEST_CASE("conformance: NaN and infinity are compared as masks") {
  double nan = std::numeric_limits<double>::quiet_NaN();
  double infinite = std::numeric_limits<double>::infinity();
  Tensor odd = reals({2}, {nan, infinite}), plain = counted({2}, 1);
  CHECK(judged({"f32[2] R", all(odd), one(odd), {}, {}, 1}).verdict == Verdict::Upheld);
  CHECK(judged({"f32[2] R", all(odd), one(plain), {}, {}, 100}).verdict == Verdict::Refuted);
  CHECK(judged({"f32[2] R", all(plain), one(odd), {}, {}, 100}).verdict == Verdict::Refuted);
  CHECK(
      judged({"f32[2] R", all(reals({2}, {nan, nan})), one(plain)}).guess.find("NaN everywhere") !=
      std::string::npos);
}

TEST_CASE("conformance: guesses") {
  std::vector<Tensor> held = different();
  Tensor x = counted({2}, 4);
  auto times = [](const Tensor &tensor, double factor) {
    Tensor made = tensor;
    for (double &cell : made.of<double>())
      cell *= factor;
    return made;
  };
  CHECK(judged({"f32[2] R", all(times(x, 4)), one(x)}).guess.find("4 times") == 0);
  CHECK(judged({"f32[2] R", all(times(x, 0.25)), one(x)}).guess.find("1/4 of") == 0);
  std::vector<Meaning> parts;
  for (const Tensor &each : held)
    parts.push_back(one(each));
  CHECK(judged({"f32[2] R", all(held[1]), one(reals({2}, {64, 68})), parts})
            .guess.find("what addend 1 of 4 is alone") == 0);
  std::vector<Tensor> swapped = {held[1], held[0], held[2], held[3]};
  CHECK(judged({"f32[2] V", swapped, list(held)}).guess.find("the blocks in another order") == 0);
  std::vector<Tensor> shifted = {held[1], held[2], held[3], held[0]};
  CHECK(judged({"f32[2] V", shifted, list(held)}).guess.find("shifted by one block") == 0);
}

TEST_CASE("conformance: in the field nothing is explained by rounding") {
  checker::CheckedProgram program =
      checked("trace { mode = local }\nmesh m { tp = 4 }\n%x = input f32[1] P");
  auto residue = [](int64_t number) {
    return Tensor{ir::DType::F32, {1}, std::vector<Residue>{Residue(number)}};
  };
  std::vector<Tensor> held = {residue(-5), residue(2), residue(3), residue(7)};
  for (int64_t sum : {7, 8}) {
    Meaning want{{}, {residue(sum)}};
    ReferenceValue wanted;
    wanted.meant = &want;
    wanted.exact = true;
    ir::ValueId value = program.program().params[0].value;
    Judgment judgment =
        judge(program.mutable_program(), {value, program.known(value), {}, held}, wanted);
    CHECK((judgment.claims[0].verdict == Verdict::Upheld) == (sum == 7));
  }
}

TEST_CASE(
    "conformance: an extent that only data tell differs from piece to piece, not between copies") {
  checker::CheckedProgram program = checked("trace { mode = local }\n"
                                            "mesh m { ep = 2, tp = 2 }\n"
                                            "symbol n { min = 0 }\n"
                                            "%x = input f32[n, 2] V@ep R@tp\n");
  ir::ValueId x = value_named(program, "%x");
  Distribution dist = distribution(program, x);
  CHECK(dist.open());
  CHECK(dist.whole() == Dims{Distribution::kOpen, 2});
  std::vector<Tensor> held{counted({3, 2}, 0), counted({3, 2}, 0), counted({1, 2}, 6),
                           counted({1, 2}, 6)};
  CHECK(dist.dims_on(3, dims_of(held)) == Dims{1, 2});
  Meaning meant{dist.per_rank_axes(), {held[0], held[2]}};
  ReferenceValue wanted;
  wanted.meant = &meant;
  wanted.exact = true;
  CHECK_FALSE(judge(program.mutable_program(), {x, program.known(x), {}, held}, wanted).refuted);
  held[3] = counted({2, 2}, 6);
  Judgment judgment = judge(program.mutable_program(), {x, program.known(x), {}, held}, wanted);
  REQUIRE(judgment.refuted);
  CHECK(judgment.refuted->form == Refuted::Form::Shape);
}

TEST_CASE("conformance: blocks of a dimension, uneven ones too, and scales") {
  checker::CheckedProgram program = checked("mesh m { tp = 2 }\n"
                                            "%x = input f32[3@tp] of [5]\n"
                                            "%p = input f32[1] P@tp scale tp\n");
  ir::ValueId x = value_named(program, "%x"), p = value_named(program, "%p");
  Distribution dist = distribution(program, x);
  CHECK(dist.whole() == Dims{5});
  CHECK(dist.first_on(1) == Dims{3});
  Meaning whole{{}, {counted({5}, 0)}};
  std::vector<Tensor> placed = dist.place(whole);
  CHECK(placed[1].of<double>() == std::vector<double>{3, 4});
  CHECK(dist.dims_on(1, dims_of(placed)) == Dims{2});
  ReferenceValue wanted;
  wanted.meant = &whole;
  wanted.exact = true;
  CHECK(judge(program.mutable_program(), {x, program.known(x), {}, placed}, wanted)
            .claims[0]
            .verdict == Verdict::Upheld);
  // The data are twice what is meant.
  Meaning meant{{}, {reals({1}, {3})}};
  wanted.meant = &meant;
  std::vector<Tensor> addends = {reals({1}, {2}), reals({1}, {4})};
  CHECK(judge(program.mutable_program(), {p, program.known(p), {}, addends}, wanted)
            .claims[0]
            .verdict == Verdict::Upheld);
}

TEST_CASE("conformance: gradients by the dual") {
  checker::CheckedProgram program = checked(
      "trace { mode = local }\nmesh m { tp = 4 }\n%x = input f32[2] R\n%g = input f32[2] P");
  ir::ValueId x = value_named(program, "%x"), g = value_named(program, "%g");
  Tensor right = reals({2}, {64, 68});
  Meaning want{{}, {right}};
  ReferenceValue wanted;
  wanted.meant = &want;
  wanted.exact = true;
  std::vector<Tensor> held = different();
  CHECK(
      judge(program.mutable_program(), {g, program.known(g), x, held}, wanted).claims[0].verdict ==
      Verdict::Upheld);
  // Each rank holds all of it: I where R is meant.
  Observed observed{g, program.known(g), x, {}};
  std::vector<Tensor> each = all(right);
  observed.tensors = each;
  Judgment judgment = judge(program.mutable_program(), observed, wanted);
  REQUIRE(judgment.refuted);
  checker::Finding finding = finding_of(program.program(), observed, *judgment.refuted, {});
  CHECK(finding.info().name == "gradient-refuted");
  CHECK(message_of(program.program(), finding) ==
        "%g is not the gradient of %x on tp: the sum is not the reference gradient");
  CHECK(judgment.refuted->guess.find("4 times the reference") == 0);
}
