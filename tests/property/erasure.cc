// Forgetting partition specs never makes an accepted program wrong: random programs that are
// accepted with their specs are accepted by kinds alone, with the kinds that they had.
#include "rules/violations/local.h"

#include "checker/check.h"
#include "ir/input/input.h"
#include "tests/unit/catch.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/core.h>

#include <random>
#include <string>
#include <vector>

namespace spmd::property {
namespace {

using checker::CheckResult;

constexpr unsigned kPrograms = 400, kStatements = 12, kTries = 60;

// `{0}`, `{1}`: operands; `{2}`: an axis; `{3}`, `{4}`: dimensions; `{5}`: what is stated partial.
constexpr const char *kTemplates[] = {
    "neg %{0}",
    "gelu %{0}",
    "mul %{0}, 2.0",
    "add %{0}, %{1}",
    "mul %{0}, %{1}",
    "matmul %{0}, %{1}{5}",
    "einsum [%{0}, %{1}] {{ equation = \"ij,kj->ik\", partial = {2} }}",
    "einsum [%{0}, %{1}] {{ equation = \"ij,ij->j\", partial = {2} }}",
    "outer %{0}, %{1}",
    "sum %{0} {{ dim = [{3}], keepdim = true, partial = {2} }}",
    "sum %{0} {{ dim = [{3}], keepdim = true }}",
    "mean %{0} {{ dim = [{3}], keepdim = true, partial = {2} }}",
    "amax %{0} {{ dim = [{3}], keepdim = true }}",
    "softmax %{0} {{ dim = {3} }}",
    "permute %{0} {{ dims = [1, 0] }}",
    "reshape %{0} {{ shape = [-1, 4] }}",
    "reshape %{0} {{ shape = [4, -1] }}",
    "cat [%{0}, %{1}] {{ dim = {3} }}",
    "slice %{0} {{ dim = {3}, start = 0, end = 2 }}",
    "where %{0}, %{1}, 0.0",
    "all_gather %{0} {{ axis = {2}, src = S({3}), dst = R }}",
    "all_gather %{0} {{ axis = {2}, src = S({3}), dst = I }}",
    "all_reduce %{0} {{ axis = {2}, src = P, dst = R }}",
    "all_reduce %{0} {{ axis = {2}, src = P, dst = I }}",
    "reduce_scatter %{0} {{ axis = {2}, src = P, dst = S({3}) }}",
    "all_to_all %{0} {{ axis = {2}, src = S({3}), dst = S({4}) }}",
    "convert %{0} {{ axis = {2}, src = R, dst = S({3}) }}",
    "convert %{0} {{ axis = {2}, src = I, dst = R }}",
    "convert %{0} {{ axis = {2}, src = R, dst = P }}",
    "convert %{0} {{ axis = {2}, src = I, dst = S({3}) }}",
};

CheckResult check(ir::Program &program, ir::Mode mode) {
  return checker::check(program, {.mode = mode});
}

// Draws statements one by one and keeps those that draw nothing.
class Chain {
public:
  explicit Chain(unsigned seed) : random_(seed) {
    static constexpr const char *kInputs[] = {
        "f32[4@dp, 8@tp]",     "f32[8, 4@tp] R@dp", "f32[8@tp, 4] I@dp",  "f32[8, 8] R",
        "f32[8, 8] I@dp R@tp", "f32[4@dp, 8] P@tp", "f32[2@(dp, tp), 8]", "f32[8, 2@(tp, dp)]",
        "f32[8, 8] P@dp R@tp", "f32[4@tp, 4@dp]"};
    text_ = "mesh m { dp = 2, tp = 4 }\n";
    for (; count_ < 5; ++count_)
      text_ += fmt::format("%{} = input {}\n", count_, kInputs[pick(std::size(kInputs))]);
    for (unsigned tries = 0, kept = 0; tries < kTries && kept < kStatements; ++tries)
      kept += extend();
  }
  const std::string &text() const { return text_; }
  unsigned statements() const { return count_ - 5; }

private:
  unsigned pick(size_t count) { return static_cast<unsigned>(random_() % count); }

  // A whole may be added to means of the ranks, which only their scale tells from sums.
  static bool adds_to_means(ir::Program &program) {
    return llvm::any_of(check(program, ir::Mode::Local).findings,
                        [](const checker::Finding &finding) {
                          return finding.violation.is<rules::PartialPlusReplicate>();
                        });
  }

  bool extend() {
    static constexpr const char *kAxes[] = {"dp", "tp"};
    const char *axis = kAxes[pick(2)];
    std::string partial = pick(2) ? fmt::format(" {{ partial = {} }}", axis) : "";
    std::string more = text_ + fmt::format("%{} = ", count_) +
                       fmt::format(fmt::runtime(kTemplates[pick(std::size(kTemplates))]),
                                   pick(count_), pick(count_), axis, pick(2), pick(2), partial) +
                       "\n";
    ir::ReadResult read = ir::read_text(more);
    REQUIRE(read.errors.empty());
    CheckResult result = check(read.program, ir::Mode::Global);
    if (!result.findings.empty() || result.types.back() == ir::TypeId())
      return false;
    // Blocks of a tensor may be uneven, members of a list are equal.
    if (llvm::any_of(
            check(read.program, ir::Mode::Local).findings,
            [](const checker::Finding &finding) { return finding.info().name == "indivisible"; }))
      return false;
    if (read.program.types[result.types.back()].scale != read.program.one() &&
        adds_to_means(read.program))
      return false;
    text_ = std::move(more);
    ++count_;
    return true;
  }

  std::mt19937 random_;
  std::string text_;
  unsigned count_ = 0;
};

} // namespace

TEST_CASE("what is accepted with its partition specs is accepted without them") {
  unsigned statements = 0;
  for (unsigned seed = 1; seed <= kPrograms; ++seed) {
    Chain chain(seed);
    statements += chain.statements();
    ir::ReadResult read = ir::read_text(chain.text());
    CheckResult global = check(read.program, ir::Mode::Global);
    CheckResult local = check(read.program, ir::Mode::Local);
    INFO("seed " << seed << "\n" << chain.text());
    CHECK(global.findings.empty());
    CHECK(local.findings.empty());
    for (size_t i = 0; i < global.types.size(); ++i) {
      INFO("%" << i);
      ir::Type kinds = read.program.types[global.types[i]].without_shards();
      kinds.scale = read.program.one(); // of a local axis there is none
      CHECK(kinds == read.program.types[local.types[i]]);
    }
  }
  CHECK(statements > kPrograms * 5);
}

} // namespace spmd::property
