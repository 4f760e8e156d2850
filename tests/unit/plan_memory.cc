// The memory plan of every program of the tests: what is in use at one time does not overlap.
#include "tests/unit/run_program.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {
namespace {

bool meet(StepRange a, StepRange b) { return a.first < b.last && b.first < a.last; }

void check_memory(const Plan &plan) {
  int64_t most = 0;
  for (uint32_t a = 0; a < plan.buffers.size(); ++a) {
    const Buffer &one = plan.buffers[BufferId{a}];
    if (one.life.empty() || one.bytes == 0)
      continue;
    REQUIRE(one.offset % 64 == 0);
    most = std::max(most, one.offset + one.bytes);
    for (uint32_t b = a + 1; b < plan.buffers.size(); ++b) {
      const Buffer &other = plan.buffers[BufferId{b}];
      if (other.life.empty() || other.bytes == 0 || !meet(one.life, other.life))
        continue;
      if (one.offset >= other.offset + other.bytes || other.offset >= one.offset + one.bytes)
        continue;
      // Only a result in the place of an operand that dies there.
      INFO("buffers " << a << " and " << b);
      REQUIRE(other.in_place == BufferId{a});
      REQUIRE(one.life.last == other.life.first + 1);
      REQUIRE(one.offset == other.offset);
    }
  }
  REQUIRE(plan.peak_bytes >= most);
  REQUIRE(plan.peak_bytes < most + 64);
}

void check_releases(const Plan &plan) {
  std::vector<bool> released(plan.buffers.size(), false);
  for (const Release &each : plan.releases) {
    REQUIRE(!released[each.buffer.index]);
    released[each.buffer.index] = true;
  }
  for (const Execution &each : plan.executions)
    for (Span span : {each.operands, each.results})
      for (PlannedId id : plan.list(span)) {
        REQUIRE(plan.values[id].from <= each.steps.last);
        REQUIRE(plan.values[id].until >= plan.values[id].from);
      }
  // What an instruction made can be read where it ends.
  for (const Execution &each : plan.executions)
    if (!each.nested)
      for (PlannedId id : plan.list(each.results)) {
        bool there = plan.values[id].until >= each.steps.last;
        REQUIRE(there);
      }
}

} // namespace

TEST_CASE("plan: no two buffers in use overlap, in any program of the tests") {
  size_t plans = 0, reused = 0;
  for (const std::string &path : case_files()) {
    INFO(path);
    std::unique_ptr<Planned> run = planned_file(path);
    if (!run->plan)
      continue;
    check_memory(*run->plan);
    check_releases(*run->plan);
    ++plans;
    reused += static_cast<size_t>(llvm::count_if(
        run->plan->buffers.all(), [](const Buffer &each) { return each.in_place.valid(); }));
  }
  WARN(plans << " plans, " << reused << " buffers in the place of an operand");
  REQUIRE(plans > 20);
  REQUIRE(reused > 20);
}

TEST_CASE("plan: a chain of pointwise ops needs two buffers, and its peak is known") {
  std::unique_ptr<Planned> run = planned(R"(mesh m { tp = 2 }
%x = input f32[100@tp] R
%a = mul %x, %x
%b = exp %a
%c = add %b, %b
%d = gelu %c
output %d
)");
  REQUIRE(run->problem == "");
  REQUIRE(run->plan->peak_bytes == 448); // 400 bytes, aligned: all in the place of %x
  REQUIRE(run->plan->fingerprint == fingerprint(run->program(), *run->plan));
}

TEST_CASE("plan: what cannot be run is named") {
  auto problem = [](std::string_view text) { return planned(text)->problem; };
  CHECK(problem("mesh m { tp = 2 }\nsymbol s0\n%x = input f32[s0] R\n%y = exp %x\n") ==
        "`%x` has the extent `s0`, which has no value");
  CHECK(problem("mesh m { tp = 2 }\nfunc @k(%i: f32[4] R) -> f32[4] R\n%x = input f32[4] R\n"
                "%y = call %x { body = @k }\n")
            .find("`@k` is opaque") != std::string::npos);
  CHECK(problem("mesh m { tp = 2 }\n%x = input f32[4] P\n%l = sum %x\nbackward %l\n")
            .find("backward program") != std::string::npos);
}

} // namespace spmd::runtime
