// Calls, scans, branches and loops; storage that is written through views.
#include "tests/unit/run_program.h"

#include <fmt/format.h>

namespace spmd::runtime {
namespace {

using Numbers = std::vector<double>;

// A run of a program with its inputs as given: by parameter and rank.
class Example {
public:
  explicit Example(std::string_view text) : run_(planned(text)) {
    INFO(text);
    REQUIRE(run_->problem == "");
    CpuOptions options;
    options.check_memory = true;
    cpu_.emplace(*run_, options);
    REQUIRE(cpu_->problem() == "");
  }
  Example &input(size_t place, const std::vector<Numbers> &by_rank) {
    PlannedId param = run_->plan->params[place];
    const Buffer &buffer = run_->plan->buffers[run_->plan->values[param].buffer];
    for (RankId rank = 0; rank < run_->world->size(); ++rank) {
      Tensor tensor = Tensor::make(buffer.dtype, buffer.on(rank), Domain::Declared);
      tensor.of<double>() = by_rank[by_rank.size() == 1 ? 0 : rank];
      cpu_->write(param, rank, tensor);
    }
    return *this;
  }
  std::string run() { return cpu_->run(); }
  Numbers output(size_t place, RankId rank) { return cpu_->output(place, rank).of<double>(); }
  const Plan &plan() const { return *run_->plan; }

private:
  std::unique_ptr<Planned> run_;
  std::optional<CpuRun> cpu_;
};

} // namespace

TEST_CASE("cpu: a function is run for each call, with the types of that call") {
  Example example(R"(trace { mode = local }
mesh m { tp = 2 }
func @gather(%i: f32[2]) {
  %o = all_reduce %i { axis = tp, dst = R }
  return %o
}
func @twice(%i: f32[2]) {
  %a = add %i, %i
  %b = call %a { body = @gather }
  return %b
}
%p = input f32[2] P
%v = input f32[2] V
%a = call %p { body = @twice }
%b = call %v { body = @gather }
output %a
output %b
)");
  example.input(0, {{1, 2}, {3, 4}}).input(1, {{5, 6}, {7, 8}});
  REQUIRE(example.run() == "");
  for (RankId rank = 0; rank < 2; ++rank) {
    CHECK(example.output(0, rank) == Numbers{8, 12});
    CHECK(example.output(1, rank) == Numbers{12, 14});
  }
}

TEST_CASE("cpu: scans take rows and stack what rounds leave, in both directions") {
  for (bool reverse : {false, true}) {
    Example example(fmt::format(R"(trace {{ mode = local }}
mesh m {{ tp = 2 }}
func @cell(%k: f32[], %s: f32[2], %x: f32[2]) {{
  %a = add %s, %x
  %b = mul %a, %k
  return %b, %a
}}
%k = input f32[] R
%s = input f32[2] V
%x = input f32[3, 2] V
%c, %y = scan %k, %s, %x {{ body = @cell, consts = 1, carry = 1{} }}
output %c
output %y
)",
                                reverse ? ", reverse = true" : ""));
    example.input(0, {{2}}).input(1, {{1, 0}, {0, 1}}).input(2, {{1, 2, 3, 4, 5, 6}});
    REQUIRE(example.run() == "");
    for (RankId rank = 0; rank < 2; ++rank) {
      double s[2] = {rank == 0 ? 1.0 : 0.0, rank == 0 ? 0.0 : 1.0};
      Numbers rows(6);
      for (size_t i = 0; i < 3; ++i) {
        size_t row = reverse ? 2 - i : i;
        for (size_t j = 0; j < 2; ++j) {
          rows[row * 2 + j] = s[j] + double(row * 2 + j + 1);
          s[j] = rows[row * 2 + j] * 2;
        }
      }
      CHECK(example.output(0, rank) == Numbers{s[0], s[1]});
      CHECK(example.output(1, rank) == rows);
    }
  }
}

TEST_CASE("cpu: each rank goes where its predicate says") {
  Example example(R"(trace { mode = local }
mesh m { dp = 2, tp = 2 }
func @no(%x: f32[2]) {
  %n = neg %x
  return %n
}
%c = input bool[] V@dp R@tp
%x = input f32[2] V
%y = cond %c, %x { then = @no, else = @no }
output %y
)");
  example.input(0, {{1}, {1}, {0}, {0}}).input(1, {{1, 2}, {3, 4}, {5, 6}, {7, 8}});
  REQUIRE(example.run() == "");
  CHECK(example.output(0, 0) == Numbers{-1, -2});
  CHECK(example.output(0, 3) == Numbers{-7, -8});
}

TEST_CASE("cpu: a branch communicates among the ranks that take it") {
  constexpr const char *text = R"(trace { mode = local }
mesh m { dp = 2, tp = 2 }
func @yes(%x: f32[2]) {
  %p = reinterpret %x { axis = tp, src = V, dst = P }
  %s = all_reduce %p { axis = tp, src = P, dst = R }
  %v = reinterpret %s { axis = tp, src = R, dst = V, expert = true }
  return %v
}
func @no(%x: f32[2]) {
  %n = neg %x
  return %n
}
%c = input bool[] V@dp R@tp
%x = input f32[2] V
%y = cond %c, %x { then = @yes, else = @no }
output %y
)";
  Example fine(text);
  fine.input(0, {{1}, {1}, {0}, {0}}).input(1, {{1, 2}, {3, 4}, {5, 6}, {7, 8}});
  REQUIRE(fine.run() == "");
  CHECK(fine.output(0, 0) == Numbers{4, 6});
  CHECK(fine.output(0, 1) == Numbers{4, 6});
  CHECK(fine.output(0, 2) == Numbers{-5, -6});
  // Data that do not uphold the type of the predicate.
  Example apart(text);
  apart.input(0, {{1}, {0}, {0}, {0}}).input(1, {{1, 2}, {3, 4}, {5, 6}, {7, 8}});
  CHECK(apart.run().find("is reached by 1 of 2 ranks") != std::string::npos);
}

TEST_CASE("cpu: loops go on for the ranks whose condition holds") {
  Example example(R"(trace { mode = local }
mesh m { tp = 2 }
func @more(%n: f32[], %x: f32[2]) {
  %c = lt %n, 3
  return %c
}
func @step(%n: f32[], %x: f32[2]) {
  %m = add %n, 1
  %y = mul %x, 2
  return %m, %y
}
%n = input f32[] V
%x = input f32[2] V
%k, %y = while %n, %x { cond = @more, body = @step }
output %k
output %y
)");
  example.input(0, {{0}, {2}}).input(1, {{1, 2}, {3, 4}});
  REQUIRE(example.run() == "");
  CHECK(example.output(0, 0) == Numbers{3});
  CHECK(example.output(1, 0) == Numbers{8, 16});
  CHECK(example.output(1, 1) == Numbers{6, 8});
}

TEST_CASE("cpu: carries may change places") {
  Example example(R"(trace { mode = local }
mesh m { tp = 2 }
func @more(%n: f32[], %a: f32[], %b: f32[]) {
  %c = lt %n, 3
  return %c
}
func @swap(%n: f32[], %a: f32[], %b: f32[]) {
  %m = add %n, 1
  return %m, %b, %a
}
%n = input f32[] R
%a = input f32[] R
%b = input f32[] R
%k, %x, %y = while %n, %a, %b { cond = @more, body = @swap }
output %x
output %y
)");
  example.input(0, {{0}}).input(1, {{5}}).input(2, {{7}});
  REQUIRE(example.run() == "");
  CHECK(example.output(0, 1) == Numbers{7});
  CHECK(example.output(1, 1) == Numbers{5});
}

TEST_CASE("cpu: what is written through a view is in the base and in its other views") {
  Example example(R"(trace { mode = local }
mesh m { tp = 2 }
%x = input f32[2, 3] R
%t aliases %x = transpose %x { dim0 = 0, dim1 = 1 }
%r aliases %t = select %t { dim = 0, index = 1 }
%w aliases %r = mul_ mut %r, 10
%y aliases %w = alias %w, %x
%u aliases %w = alias %w, %t
output %y
output %u
)");
  example.input(0, {{1, 2, 3, 4, 5, 6}});
  REQUIRE(example.run() == "");
  CHECK(example.output(0, 1) == Numbers{1, 20, 3, 4, 50, 6});
  CHECK(example.output(1, 1) == Numbers{1, 4, 20, 50, 3, 6});
}

TEST_CASE("cpu: in a region uneven blocks are tensors of each rank") {
  Example example(R"(mesh m { tp = 3 }
%x = input f32[3@tp, 2] of [7, 2]
%y: f32[3@tp] of [7] = local_map over tp (%q = %x S(0)@tp) {
  %e = mul %q, %q
  %s = sum %e { dim = [1] }
  yield %s
}
output %y
)");
  example.input(0, {{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}, {13, 14}});
  REQUIRE(example.run() == "");
  CHECK(example.output(0, 0) == Numbers{5, 25, 61});
  CHECK(example.output(0, 2) == Numbers{365});
}

} // namespace spmd::runtime
