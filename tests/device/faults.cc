// Devices that fail: the run ends, on all ranks, soon and with an error. It is never taken for one
// that went well.
#include "tests/device/threads.h"

#include <fmt/format.h>

using namespace spmd;
using namespace spmd::runtime;
using namespace spmd::test;

namespace {

using std::chrono::milliseconds;

// A gather and an exchange along one axis, of two groups.
constexpr const char *kProgram = R"(mesh m { dp = 2, tp = 2 }
%x = input f32[8@dp, 16@tp]
%a = all_gather %x { axis = tp, src = S(1), dst = R }
%b = mul %a, %a
%s = all_to_all %x { axis = tp, src = S(1), dst = S(0) }
output %b
output %s
)";

struct Ends {
  bool all_failed = true, none_failed = true;
  std::string problems;
  milliseconds took{0};
};
Ends run_with(std::optional<FakeFault> fault, milliseconds patience) {
  ThreadsOptions options;
  options.devices.fault = fault;
  options.patience = patience;
  auto begin = std::chrono::steady_clock::now();
  Ends ends;
  for (const RankRun &run : run_on_threads(kProgram, 4, options)) {
    (run.problem.empty() ? ends.all_failed : ends.none_failed) = false;
    ends.problems += run.problem + "; ";
  }
  ends.took = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
  return ends;
}

} // namespace

TEST_CASE("device: a run without a fault ends without one") {
  Ends ends = run_with(std::nullopt, milliseconds(20'000));
  INFO(ends.problems);
  CHECK(ends.none_failed);
}

TEST_CASE("device: a rank that does not come to a collective ends all") {
  for (uint32_t rank = 0; rank < 4; ++rank)
    for (uint32_t collective : {0u, 1u}) {
      Ends ends = run_with(FakeFault{FakeFault::Form::Absent, rank, collective}, milliseconds(300));
      INFO(rank << ", " << collective << ": " << ends.problems);
      CHECK(ends.all_failed);
      CHECK(ends.took < milliseconds(10'000));
    }
}

TEST_CASE("device: a rank that leaves out a collective does not end well") {
  for (uint32_t collective : {0u, 1u}) {
    Ends ends = run_with(FakeFault{FakeFault::Form::Skipped, 1, collective}, milliseconds(300));
    INFO(collective << ": " << ends.problems);
    CHECK_FALSE(ends.none_failed);
  }
}

TEST_CASE("device: a device that breaks is named, and ends all") {
  Ends ends = run_with(FakeFault{FakeFault::Form::Broken, 2, 1}, milliseconds(20'000));
  INFO(ends.problems);
  CHECK(ends.all_failed);
  CHECK(ends.problems.find("the device failed") != std::string::npos);
  CHECK(ends.took < milliseconds(10'000));
}

TEST_CASE(
    "device: a plan that is too large for a device says how much it takes, and what is free") {
  ThreadsOptions options;
  options.devices.memory = FakeMemory{1, 1000};
  std::vector<RankRun> runs = run_on_threads(kProgram, 4, options);
  INFO(runs[1].problem);
  CHECK(runs[1].problem.find("bytes on a device that has 1000 free") != std::string::npos);
  options.devices.memory->tells = false;
  runs = run_on_threads(kProgram, 4, options);
  INFO(runs[1].problem);
  CHECK(runs[1].problem.find("bytes on a device that does not give them") != std::string::npos);
}

TEST_CASE("device: a rank that is slow is waited for") {
  FakeFault fault{FakeFault::Form::Slow, 3, 0, 200};
  Ends ends = run_with(fault, milliseconds(20'000));
  INFO(ends.problems);
  CHECK(ends.none_failed);
}
