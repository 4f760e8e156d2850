// Bounds on rounding: they hold of what rounding does, and what is wrong stands out unless they are
// blind.
#include "runtime/judge/bounds.h"
#include "runtime/judge/conformance.h"

#include "tests/unit/checked_programs.h"

#include <fmt/format.h>

#include <cmath>

using namespace spmd;
using namespace spmd::runtime;

namespace {

// The last instruction of a program, with data for its operands, and what it made of them.
struct Step {
  checker::CheckedProgram program;
  Reference reference;
  ir::InstId inst;
  std::unique_ptr<ResolvedInst> seen;

  explicit Step(const std::string &text)
      : program(checked(text)),
        reference(program, Domain::F64, 0), inst{program.program().main.last.index - 1} {
    llvm::Expected<std::unique_ptr<ResolvedInst>> found = reference.resolve_inst(inst, {});
    REQUIRE(static_cast<bool>(found));
    seen = std::move(*found);
  }

  Meaning want(llvm::ArrayRef<std::vector<Tensor>> operands) {
    Meanings meant;
    std::vector<const Meaning *> pointers;
    for (unsigned i = 0; i < operands.size(); ++i) {
      std::vector<const Tensor *> held;
      for (const Tensor &tensor : operands[i])
        held.push_back(&tensor);
      meant.push_back(seen->known(i)->denote(held));
    }
    for (const Meaning &meaning : meant)
      pointers.push_back(&meaning);
    llvm::Expected<Meanings> made = reference.apply(*seen, inst, {}, pointers);
    if (!made)
      FAIL(llvm::toString(made.takeError()));
    return std::move(made->front());
  }

  Meaning bound(llvm::ArrayRef<std::vector<Tensor>> operands, const std::vector<Tensor> &result,
                SumOrder order = SumOrder::Ranks) {
    llvm::SmallVector<llvm::ArrayRef<Tensor>, 4> held, made;
    for (const std::vector<Tensor> &operand : operands)
      held.push_back(operand);
    made.push_back(result);
    Bounds bounds(reference, Domain::Declared, order);
    llvm::Expected<Meanings> found = bounds.of(*seen, inst, {}, {held, made});
    if (!found)
      FAIL(llvm::toString(found.takeError()));
    return std::move(found->front());
  }

  Meaning got(const std::vector<Tensor> &result) {
    std::vector<const Tensor *> held;
    for (const Tensor &tensor : result)
      held.push_back(&tensor);
    return seen->to(0)->denote(held);
  }
};

struct Reduced {
  double largest = 0, missing = 1e300;
  bool blind = false;
};

// A sum over n ranks in the order of the ranks, each addition rounded.
Reduced all_reduced(size_t n, ir::DType dtype, unsigned draws, SumOrder order) {
  Step step(fmt::format("trace {{ mode = local }}\nmesh m {{ tp = {} }}\n%x = input {}[64] P\n"
                        "%y = all_reduce %x {{ axis = tp, src = P, dst = R }}",
                        n, ir::info(dtype).word));
  Reduced found;
  std::mt19937 random(7);
  for (unsigned draw = 0; draw < draws; ++draw) {
    std::vector<Tensor> x;
    for (size_t r = 0; r < n; ++r)
      x.push_back(drawn({64}, random, dtype));
    Tensor sum = x[0];
    for (size_t r = 1; r < n; ++r) {
      combine_into(sum, x[r], ir::Combiner::Sum);
      round_cells(sum, Domain::Declared);
    }
    std::vector<Tensor> y(n, sum);
    Meaning want = step.want({x}), bound = step.bound({x}, y, order);
    found.largest = std::max(found.largest, largest_ratio(step.got(y), want, &bound));
    llvm::SmallVector<llvm::ArrayRef<Tensor>, 1> operands{x}, results{y};
    Reduction reduction = reduction_of(step.reference, *step.seen, {}, {operands, results}, 0);
    REQUIRE(reduction.parts.size() == n);
    found.blind |= is_blind(want, &bound, reduction.parts, static_cast<int64_t>(n));
    for (const Meaning &part : reduction.parts)
      found.missing = std::min(found.missing, largest_ratio(part, want, &bound));
  }
  return found;
}

} // namespace

TEST_CASE("bounds: sums over ranks in bf16, and how many ranks make them blind") {
  for (SumOrder order : {SumOrder::Ranks, SumOrder::Any})
    for (size_t n : {2, 8, 64}) {
      Reduced found = all_reduced(n, ir::DType::BF16, 20, order);
      INFO("n = " << n << ": error " << found.largest << " bounds, missing sum " << found.missing);
      CHECK(found.largest <= 1);
      CHECK(found.largest > 0);
      // In the order of the ranks the bound is sharper by the root of their number.
      CHECK(found.blind == (n == 64 && order == SumOrder::Any));
    }
  CHECK_FALSE(all_reduced(64, ir::DType::F32, 2, SumOrder::Any).blind);
}

TEST_CASE("bounds: products of narrow numbers, partial over ranks") {
  for (ir::DType dtype : {ir::DType::BF16, ir::DType::F16, ir::DType::F32}) {
    Step step(fmt::format("trace {{ mode = local }}\nmesh m {{ tp = 2 }}\n%x = input {0}[4, 32] V\n"
                          "%w = input {0}[32, 4] V\n%y = matmul %x, %w {{ partial = tp }}",
                          ir::info(dtype).word));
    std::mt19937 random(3);
    for (unsigned draw = 0; draw < 10; ++draw) {
      std::vector<Tensor> x, w, y;
      for (size_t r = 0; r < 2; ++r) {
        x.push_back(drawn({4, 32}, random, dtype));
        w.push_back(drawn({32, 4}, random, dtype));
        Tensor product = counted({4, 4}, 0, dtype);
        for (size_t i = 0; i < 16; ++i) {
          float sum = 0;
          for (size_t k = 0; k < 32; ++k)
            sum += static_cast<float>(x[r].of<double>()[i / 4 * 32 + k]) *
                   static_cast<float>(w[r].of<double>()[k * 4 + i % 4]);
          product.of<double>()[i] = rounded(sum, dtype);
        }
        y.push_back(product);
      }
      Meaning want = step.want({x, w}), bound = step.bound({x, w}, y);
      double ratio = largest_ratio(step.got(y), want, &bound);
      CHECK(ratio <= 1);
      // One rank's part is far outside.
      std::vector<Tensor> half = {y[0], zeros_like(y[1], y[1].dims)};
      CHECK(largest_ratio(step.got(half), want, &bound) > 20);
    }
  }
}

TEST_CASE("bounds: differences do not cancel in the bound") {
  Step step("trace { mode = local }\nmesh m { tp = 2 }\n%a = input f32[2] R\n%b = input f32[2] R\n"
            "%y = sub %a, %b");
  std::vector<Tensor> a(2, reals({2}, {1, 1000})), b(2, reals({2}, {1, 1000}));
  std::vector<Tensor> y(2, reals({2}, {0, 0}));
  Meaning bound = step.bound({a, b}, y);
  CHECK(bound.pieces[0].of<double>()[1] > 1000 * 0x1p-53);
  CHECK(bound.pieces[0].of<double>()[1] < 1000 * 0x1p-20);
}

TEST_CASE("bounds: functions by what is stored, gelu by what enters") {
  Step exp("trace { mode = local }\nmesh m { tp = 2 }\n%a = input f32[2] R\n%y = exp %a");
  std::vector<Tensor> a(2, reals({2}, {0, 1})), y(2, reals({2}, {1, 2.718281828}));
  Meaning bound = exp.bound({a}, y);
  CHECK(std::abs(bound.pieces[0].of<double>()[0] / (8 * 0x1p-24) - 1) < 0.01);
  Step gelu("trace { mode = local }\nmesh m { tp = 2 }\n%a = input f32[1] R\n%y = gelu %a");
  std::vector<Tensor> far(2, reals({1}, {-6})), none(2, reals({1}, {0}));
  CHECK(gelu.bound({far}, none).pieces[0].of<double>()[0] > 6 * 8 * 0x1p-25);
}

TEST_CASE("bounds: what is copied must be the same bits") {
  Step step("trace { mode = local }\nmesh m { tp = 2 }\n%a = input f32[2, 3] V\n"
            "%y = transpose %a { dim0 = 0, dim1 = 1 }");
  std::vector<Tensor> a(2, counted({2, 3}, 1)), y(2, reals({3, 2}, {1, 4, 2, 5, 3, 6}));
  Meaning bound = step.bound({a}, y);
  for (const Tensor &piece : bound.pieces)
    for (double cell : piece.of<double>())
      CHECK(cell < 0x1p-46);
  CHECK(gamma(1e9, 0x1p-24) == std::numeric_limits<double>::infinity());
}
