// What a plan looks like, and what its fingerprint sees.
#include "tests/unit/run_program.h"

namespace spmd::runtime {
namespace {

constexpr std::string_view kProgram = R"(mesh m { dp = 2, tp = 2 }
%x = input f32[4@dp, 6] R@tp
%w = param f32[6, 2@tp] R@dp
%v = param f32[2@tp, 6] R@dp
%h = matmul %x, %w
%g = gelu %h
%p = matmul %g, %v { partial = tp }
%y = reduce_scatter %p { axis = tp, src = P, dst = S(1) }
output %y
)";

} // namespace

TEST_CASE("plan: as it prints") {
  std::unique_ptr<Planned> run = planned(kProgram);
  REQUIRE(run->problem == "");
  CHECK(print(run->program(), *run->plan) == R"(    0  b3 = matmul b0, b1
    1  release b0
    2  release b1
    3  b4 = gelu b3
    4  release b3
    5  b5 = matmul b4, b2 { partial = (tp) }
    6  release b2
    7  release b4
    8  b6 = split b5 over m.(tp) dim 1 by [3, 3]
    9  release b5
   10  b7 = reduce_scatter b6 over m.(tp) sum in f32
   11  release b6
param %x b0
param %w b1
param %v b2
output %y b7
b0 f32[4, 6] at 0 for 96 bytes, steps 0 to 0
b1 f32[6, 2] at 128 for 48 bytes, steps 0 to 0
b2 f32[2, 6] at 192 for 48 bytes, steps 0 to 5
b3 f32[4, 2] at 256 for 32 bytes, steps 0 to 3
b4 f32[4, 2] at 256 for 32 bytes, steps 3 to 5, in place of b3
b5 f32[4, 6] at 0 for 96 bytes, steps 5 to 8
b6 f32[24] at 128 for 96 bytes, steps 8 to 10
b7 f32[4, 3] at 0 for 48 bytes, steps 10 to 12
peak 320 bytes per rank
)");
}

TEST_CASE("plan: equal programs have one fingerprint, others another") {
  uint64_t first = planned(kProgram)->plan->fingerprint;
  CHECK(planned(kProgram)->plan->fingerprint == first);
  std::string other(kProgram);
  other.replace(other.find("gelu"), 4, "silu");
  CHECK(planned(other)->plan->fingerprint != first);
  other = kProgram;
  other.replace(other.find("dst = S(1)"), 10, "dst = S(0)");
  CHECK(planned(other)->plan->fingerprint != first);
}

} // namespace spmd::runtime
