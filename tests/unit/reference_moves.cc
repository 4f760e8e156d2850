// What transitions make of what values mean, against lists that are written down.
#include "runtime/reference/run.h"

#include "tests/unit/checked_programs.h"

#include <fmt/format.h>

using namespace spmd;
using namespace spmd::runtime;

namespace {

using Pieces = std::vector<std::vector<double>>;

// The last instruction of a local program over two ranks whose only input has these pieces: one for
// R, I and P, one for each rank for V.
Pieces after(std::string_view program, Dims dims, const Pieces &pieces) {
  checker::CheckedProgram checked =
      runtime::checked(fmt::format("trace {{ mode = local }}\nmesh m {{ tp = 2 }}\n{}", program));
  Reference reference(checked, Domain::F64, 0);
  ReferenceRun run(reference);
  Distribution input = distribution(checked, checked.program().params[0].value);
  Meaning meaning{input.per_rank_axes(), {}};
  REQUIRE(static_cast<int64_t>(pieces.size()) == input.per_rank_grid().size());
  for (const std::vector<double> &cells : pieces)
    meaning.pieces.push_back(reals(dims, cells));
  llvm::Error failed = run.run({meaning});
  if (failed)
    FAIL(llvm::toString(std::move(failed)));
  const ir::Program &code = checked.program();
  const Meaning *made = run.find(code.insts[ir::InstId{code.main.last.index - 1}].first_result);
  REQUIRE(made);
  Pieces cells;
  for (const Tensor &piece : made->pieces)
    cells.push_back(piece.of<double>());
  return cells;
}

} // namespace

TEST_CASE("reference: lists are joined, as a stack or one after the other") {
  CHECK(after("%x = input f32[2] V\n%y = all_gather %x { axis = tp, src = V, dst = R }", {2},
              {{1, 2}, {3, 4}}) == Pieces{{1, 2, 3, 4}});
  CHECK(after("%x = input f32[2] V\n%y = all_gather %x { axis = tp, src = V, dst = R, dim = 1 }",
              {2}, {{1, 2}, {3, 4}}) == Pieces{{1, 3, 2, 4}});
  CHECK(after("%x = input f32[2, 1] V\n%y = all_gather %x { axis = tp, src = S(1), dst = R }",
              {2, 1}, {{1, 2}, {3, 4}}) == Pieces{{1, 3, 2, 4}});
}

TEST_CASE("reference: a whole is cut into a list") {
  CHECK(after("%x = input f32[4] R\n%y = convert %x { axis = tp, src = R, dst = S(0) }", {4},
              {{1, 2, 3, 4}}) == Pieces{{1, 2}, {3, 4}});
  CHECK(after("%x = input f32[2] R\n%y = convert %x { axis = tp, src = R, dst = V }", {2},
              {{1, 2}}) == Pieces{{1}, {2}});
  CHECK(after("%x = input f32[4] P\n%y = reduce_scatter %x { axis = tp, src = P, dst = S(0) }", {4},
              {{1, 2, 3, 4}}) == Pieces{{1, 2}, {3, 4}});
}

TEST_CASE("reference: what all hold is repeated, or counted once for each rank") {
  CHECK(after("%x = input f32[2] R\n%y = reinterpret %x { axis = tp, src = R, dst = V, "
              "expert = true }",
              {2}, {{1, 2}}) == Pieces{{1, 2}, {1, 2}});
  CHECK(after("%x = input f32[2] R\n%y = reinterpret %x { axis = tp, src = R, dst = P, "
              "expert = true }",
              {2}, {{1, 2}}) == Pieces{{2, 4}});
  CHECK(after("%x = input f32[2] R\n%y = convert %x { axis = tp, src = R, dst = P }", {2},
              {{1, 2}}) == Pieces{{1, 2}});
}

TEST_CASE("reference: lists are added up") {
  CHECK(after("%x = input f32[2] V\n%y = reinterpret %x { axis = tp, src = V, dst = P }", {2},
              {{1, 2}, {3, 5}}) == Pieces{{4, 7}});
  CHECK(after("%x = input f32[2] P\n%y = all_reduce %x { axis = tp, src = P, dst = R }", {2},
              {{4, 7}}) == Pieces{{4, 7}});
  CHECK(after("%x = input f32[2] P\n%y = all_reduce %x { axis = tp, op = avg, src = P, dst = R }",
              {2}, {{4, 7}}) == Pieces{{2, 3.5}});
}

TEST_CASE("reference: pieces change places") {
  CHECK(after("%x = input f32[2, 1] V\n%y = all_to_all %x { axis = tp, src = S(1), dst = S(0) }",
              {2, 1}, {{1, 2}, {3, 4}}) == Pieces{{1, 3}, {2, 4}});
  CHECK(after("%x = input f32[2, 3] V\n%y = all_to_all %x { axis = tp, src = V, dst = V, "
              "split_dim = 0, concat_dim = 1 }",
              {2, 3}, {{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}}) ==
        Pieces{{1, 7, 2, 8, 3, 9}, {4, 10, 5, 11, 6, 12}});
  CHECK(after("%x = input f32[1] V\n%y = collective_permute %x { axis = tp, src = V, dst = V, "
              "perm = [[0, 1]] }",
              {1}, {{1}, {2}}) == Pieces{{0}, {1}});
}

TEST_CASE("reference: roots") {
  CHECK(after("%x = input f32[1] V\n%y = broadcast %x { axis = tp, src = V, dst = R, root = 1 }",
              {1}, {{1}, {2}}) == Pieces{{2}});
  CHECK(after("%x = input f32[1] P\n%y = reduce %x { axis = tp, src = P, dst = V, root = 1 }", {1},
              {{3}}) == Pieces{{0}, {3}});
}

TEST_CASE("reference: ops on lists are done piece by piece, and added up where they are partial") {
  CHECK(after("%x = input f32[2] V\n%y = mul %x, %x", {2}, {{1, 2}, {3, 4}}) ==
        Pieces{{1, 4}, {9, 16}});
  CHECK(after("%x = input f32[2] V\n%y = sum %x { dim = [0], partial = tp }", {2},
              {{1, 2}, {3, 4}}) == Pieces{{10}});
  CHECK(after("%x = input f32[2] P\n%i = axis_index { axis = tp }\n%y = neg %x", {2}, {{1, 2}}) ==
        Pieces{{-1, -2}});
}

TEST_CASE("reference: calls, loops and branches") {
  CHECK(after(R"(func @twice(%a: f32[2]) {
  %b = add %a, %a
  return %b
}
%x = input f32[2] V
%y = call %x { body = @twice })",
              {2}, {{1, 2}, {3, 4}}) == Pieces{{2, 4}, {6, 8}});
  CHECK(after(R"(func @step(%s: f32[], %r: f32[]) {
  %t = add %s, %r
  return %t, %t
}
%x = input f32[3] R
%none = zeros { shape = [], dtype = f32 }
%last, %all = scan %none, %x { body = @step, carry = 1 }
%y = neg %all)",
              {3}, {{1, 2, 3}}) == Pieces{{-1, -3, -6}});
}

TEST_CASE("reference: a write through a view changes what other names show") {
  CHECK(after(R"(%x = input f32[4] R
%v aliases %x = slice %x { dim = 0, start = 1, end = 3 }
%w aliases %v = mul_ mut %v, 10.0
%y aliases %w = alias %w, %x)",
              {4}, {{1, 2, 3, 4}}) == Pieces{{1, 20, 30, 4}});
}
