// What fingerprints decide is what data decide, for every kind of type, right or with one mistake;
// and all that is right they decide.
#include "runtime/judge/conformance.h"
#include "runtime/judge/fingerprint.h"

#include "tests/unit/checked_programs.h"

#include <fmt/format.h>

using namespace spmd;
using namespace spmd::runtime;

namespace {

constexpr uint64_t kKey = 7;

// Of the mesh below; whether fingerprints can decide what is right.
struct Form {
  const char *type;
  bool adds_up = true;
};
constexpr Form kForms[] = {
    {"f32[3, 4] R"},
    {"f32[3, 4] I@dp R@tp"},
    {"f32[2@dp, 4] R@tp"},
    {"f32[2@tp, 4] of [5, 4] R@dp"},
    {"f32[2@(dp, tp), 4]"},
    {"f32[1@(tp, dp), 2]"},
    {"f32[2@dp, 3@tp]"},
    {"f32[3, 4] P@dp R@tp"},
    {"f32[3, 4] P"},
    {"f32[2@dp, 4] P@tp"},
    {"f32[3, 4] P@tp V@dp"},
    {"f32[3, 4] V"},
    {"f32[] P"},
    {"f32[4] P@tp R@dp scale tp"},
    {"f32[4] P(max)@tp R@dp", false},
    {"f32[0, 4] R"},
};

Tensor numbers(const Dims &dims, std::mt19937 &random, Domain domain) {
  Tensor made = Tensor::make(ir::DType::F32, dims, domain);
  made.visit([&](auto &cells) {
    for (auto &cell : cells)
      cell = int64_t(random() % 1000) - 500;
  });
  return made;
}

// What ranks hold so that they mean something, and that.
struct Sample {
  std::vector<Tensor> held;
  Meaning meant;
};

Sample sample(ir::Program &program, const Distribution &dist, std::mt19937 &random, Domain domain) {
  Sample made;
  std::vector<Dims> none(static_cast<size_t>(dist.ranks().size()));
  for (int64_t rank = 0; rank < dist.ranks().size(); ++rank)
    made.held.push_back(numbers(dist.dims_on(rank, none), random, domain));
  ir::AxisSet copied = dist.type().replicated() | dist.type().of(ir::Kind::Invariant);
  for (int64_t rank = 0; rank < dist.ranks().size(); ++rank) {
    Grid::Coordinates at = dist.ranks().coordinates(rank);
    for (ir::AxisId axis : copied &dist.ranks().axes())
      at[axis.index] = 0;
    made.held[static_cast<size_t>(rank)] =
        made.held[static_cast<size_t>(dist.ranks().position(at))];
  }
  std::vector<const Tensor *> held;
  for (const Tensor &tensor : made.held)
    held.push_back(&tensor);
  made.meant = dist.denote(held);
  Rational scale = *number_of(program, dist.type().scale, dist.type().mesh());
  for (Tensor &piece : made.meant.pieces)
    multiply(piece, scale.second, scale.first);
  return made;
}

std::vector<Fingerprint> told(const Distribution &dist, llvm::ArrayRef<Tensor> held) {
  std::vector<Fingerprint> prints;
  for (size_t rank = 0; rank < held.size(); ++rank) {
    Dims first = dist.first_on(static_cast<int64_t>(rank));
    std::string bytes;
    write(fingerprint_of(held[rank], llvm::ArrayRef<int64_t>(first), kKey), bytes);
    llvm::StringRef rest = bytes;
    REQUIRE(read(rest, prints.emplace_back()));
    CHECK(rest.empty());
  }
  return prints;
}

// Mistakes of one rank or of two; false: it cannot be made of this value.
using Mistake = bool (*)(Sample &sample, std::mt19937 &random);
constexpr Mistake kMistakes[] = {
    [](Sample &, std::mt19937 &) { return true; },
    [](Sample &sample, std::mt19937 &random) {
      Tensor &one = sample.held[random() % sample.held.size()];
      one.visit([&](auto &cells) {
        if (!cells.empty())
          cells[random() % cells.size()] += 1;
      });
      return one.size() > 0;
    },
    [](Sample &sample, std::mt19937 &random) {
      std::swap(sample.held[0], sample.held[1 + random() % (sample.held.size() - 1)]);
      return true;
    },
    [](Sample &sample, std::mt19937 &random) {
      Tensor &one = sample.held[random() % sample.held.size()];
      one.visit([&](auto &cells) { std::reverse(cells.begin(), cells.end()); });
      return true;
    },
    [](Sample &sample, std::mt19937 &) {
      for (Tensor &each : sample.held)
        multiply(each, 2, 1);
      return true;
    },
    [](Sample &sample, std::mt19937 &) {
      sample.held.back().dims.insert(sample.held.back().dims.begin(), 1);
      return true;
    },
    [](Sample &sample, std::mt19937 &) {
      sample.held.back().dtype = ir::DType::F64;
      return true;
    },
    [](Sample &sample, std::mt19937 &) {
      Tensor &one = sample.held.back();
      if (one.is_modular() || one.size() == 0)
        return false;
      one.of<double>().back() = std::numeric_limits<double>::quiet_NaN();
      return true;
    },
};

void check_form(const Form &form, Domain domain, std::mt19937 &random) {
  INFO(form.type);
  checker::CheckedProgram program = checked(fmt::format(
      "trace {{ mode = local }}\nmesh m {{ dp = 2, tp = 3 }}\n%x = input {}", form.type));
  const ir::ValueId x = program.program().params[0].value;
  const Distribution dist = distribution(program, x);
  for (size_t mistake = 0; mistake < std::size(kMistakes); ++mistake) {
    INFO("mistake " << mistake);
    Sample made = sample(program.mutable_program(), dist, random, domain);
    if (!kMistakes[mistake](made, random))
      continue;
    for (bool compared : {true, false}) {
      ReferenceValue wanted;
      wanted.meant = compared ? &made.meant : nullptr;
      wanted.exact = true;
      const Judgment data =
          judge(program.mutable_program(), {x, program.known(x), {}, made.held}, wanted);
      Observed observed{x, program.known(x), {}, {}};
      std::vector<Fingerprint> prints;
      if (made.held.back().dims.size() == dist.whole().size())
        prints = told(dist, made.held);
      else // which says no sum
        for (const Tensor &tensor : made.held)
          prints.push_back(fingerprint_of(tensor, std::nullopt, kKey));
      observed.fingerprints = prints;
      std::optional<Judgment> decided =
          judge_fingerprints(program.mutable_program(), observed, wanted, kKey);
      CHECK(decided.has_value() == (!data.refuted && (form.adds_up || !compared)));
      for (size_t i = 0; decided && i < data.claims.size(); ++i)
        CHECK(decided->claims[i].verdict == data.claims[i].verdict);
    }
  }
}

} // namespace

TEST_CASE("fingerprints decide as data do") {
  std::mt19937 random(1);
  for (const Form &form : kForms)
    for (Domain domain : {Domain::Declared, Domain::Field})
      for (int round = 0; round < 5; ++round)
        check_form(form, domain, random);
}

TEST_CASE("fingerprints: without a bound nothing is compared but the form") {
  checker::CheckedProgram program =
      checked("trace { mode = local }\nmesh m { tp = 2 }\n%x = input f32[2] R");
  const ir::ValueId x = program.program().params[0].value;
  std::vector<Tensor> held(2, counted({2}, 1));
  std::vector<Fingerprint> prints(2, fingerprint_of(held[0], std::nullopt, kKey));
  Meaning other{{}, {counted({2}, 9)}};
  ReferenceValue wanted;
  wanted.meant = &other;
  Observed observed{x, program.known(x), {}, {}, prints};
  std::optional<Judgment> decided =
      judge_fingerprints(program.mutable_program(), observed, wanted, kKey);
  REQUIRE(decided);
  CHECK(decided->undecided ==
        judge(program.mutable_program(), {x, program.known(x), {}, held}, wanted).undecided);
  Meaning longer{{}, {counted({3}, 9)}};
  wanted.meant = &longer;
  CHECK_FALSE(judge_fingerprints(program.mutable_program(), observed, wanted, kKey));
}

TEST_CASE("fingerprints: sums of long rows are those of their parts") {
  std::mt19937 random(3);
  for (Domain domain : {Domain::Declared, Domain::Field}) {
    Tensor whole = numbers({3, 9001}, random, domain);
    Residue sum;
    for (int64_t at : {0, 4000, 4100}) {
      const int64_t end = at == 0 ? 4000 : at == 4000 ? 4100 : 9001;
      sum += *weighted_sum(slice_of(whole, 1, at, end - at), {0, at}, kKey);
    }
    CHECK(sum == *weighted_sum(whole, {0, 0}, kKey));
    CHECK_FALSE(sum == *weighted_sum(whole, {0, 1}, kKey));
    CHECK_FALSE(sum == *weighted_sum(whole, {0, 0}, kKey + 1));
  }
}

TEST_CASE("fingerprints: bytes that are too few are none") {
  std::string bytes;
  write(fingerprint_of(counted({2, 3}, 1), std::nullopt, kKey), bytes);
  for (size_t size = 0; size < bytes.size(); ++size) {
    llvm::StringRef part = llvm::StringRef(bytes).take_front(size);
    Fingerprint made;
    CHECK_FALSE(read(part, made));
  }
}

TEST_CASE("fingerprints of 16 384 ranks") {
  constexpr int64_t kMany = 16384;
  for (std::string type : {"f32[64] R", "f32[2@(dp, tp), 4]", "f32[4] P"}) {
    INFO(type);
    checker::CheckedProgram program =
        checked(fmt::format("trace {{ mode = local }}\nmesh m {{ dp = 128, tp = 128 }}\n"
                            "%x = input {}",
                            type));
    const ir::ValueId x = program.program().params[0].value;
    const Distribution dist = distribution(program, x);
    REQUIRE(dist.ranks().size() == kMany);
    std::mt19937 random(1);
    Sample made = sample(program.mutable_program(), dist, random, Domain::Declared);
    ReferenceValue wanted;
    wanted.meant = &made.meant;
    wanted.exact = true;
    Observed observed{x, program.known(x), {}, {}};
    std::vector<Fingerprint> prints = told(dist, made.held);
    observed.fingerprints = prints;
    CHECK(judge_fingerprints(program.mutable_program(), observed, wanted, kKey));
    made.held[kMany - 1].of<double>().back() += 1;
    prints = told(dist, made.held);
    observed.fingerprints = prints;
    CHECK_FALSE(judge_fingerprints(program.mutable_program(), observed, wanted, kKey));
  }
}
