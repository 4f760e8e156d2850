// Neighbouring collectives as one batch, and stretches of steps that are replayed: the numbers stay
// what they are.
#include "tests/device/threads.h"

#include "runtime/tensor/element_bytes.h"

#include <fmt/format.h>

using namespace spmd;
using namespace spmd::runtime;
using namespace spmd::test;

namespace {

using std::chrono::milliseconds;

// Three gathers side by side, and after a product two sums side by side, along two axes.
constexpr const char *kSideBySide = R"(mesh m { dp = 2, tp = 2 }
%x = input f32[8@tp, 16] R@dp
%w = input f32[8@tp, 4] R@dp
%v = input f32[12@dp] R@tp
%a = all_gather %x { axis = tp, src = S(0), dst = R }
%b = all_gather %w { axis = tp, src = S(0), dst = R }
%c = all_gather %v { axis = dp, src = S(0), dst = R }
%d = matmul %a, %b
%e = sum %v { dim = [0], partial = dp }
%f = sum %x { dim = [0], partial = tp }
%g = all_reduce %e { axis = dp, src = P, dst = R }
%h = all_reduce %f { axis = tp, src = P, dst = R }
output %c
output %d
output %g
output %h
)";

// Each needs what the one before it made.
constexpr const char *kOneAfterAnother = R"(mesh m { dp = 2, tp = 2 }
%x = input f32[8@dp, 16] R@tp
%a = all_gather %x { axis = dp, src = S(0), dst = R }
%b = convert %a { axis = dp, src = R, dst = P }
%c = all_reduce %b { axis = dp, src = P, dst = R }
%d = all_to_all %x { axis = dp, src = S(0), dst = S(1) }
output %c
output %d
)";

ThreadsOptions plain() {
  ThreadsOptions options;
  options.batches = false;
  return options;
}

// The same bits, on all ranks.
void expect_same(const std::vector<RankRun> &got, const std::vector<RankRun> &want) {
  REQUIRE(got.size() == want.size());
  for (size_t rank = 0; rank < got.size(); ++rank) {
    INFO("rank " << rank << ": " << got[rank].problem << want[rank].problem);
    REQUIRE((got[rank].problem.empty() && want[rank].problem.empty()));
    REQUIRE(got[rank].outputs.size() == want[rank].outputs.size());
    for (size_t i = 0; i < got[rank].outputs.size(); ++i) {
      CHECK(got[rank].outputs[i].dims == want[rank].outputs[i].dims);
      if (!want[rank].outputs[i].dims.empty())
        CHECK(pack_elements(got[rank].outputs[i]) == pack_elements(want[rank].outputs[i]));
    }
  }
}

} // namespace

TEST_CASE("device: neighbouring collectives are one launch, and give the same") {
  FakeCounts together, apart;
  ThreadsOptions options;
  options.counts = &together;
  const std::vector<RankRun> got = run_on_threads(kSideBySide, 4, options);
  options = plain();
  options.counts = &apart;
  expect_same(got, run_on_threads(kSideBySide, 4, options));
  CHECK(apart.launches == 4 * 5);
  CHECK(together.launches == 4 * 2);
}

TEST_CASE("device: a collective that needs another one is in no batch with it") {
  FakeCounts counts;
  ThreadsOptions options;
  options.counts = &counts;
  const std::vector<RankRun> got = run_on_threads(kOneAfterAnother, 4, options);
  expect_same(got, run_on_threads(kOneAfterAnother, 4, plain()));
  CHECK(counts.launches == 4 * 2); // the sum needs the gather, the exchange neither
}

TEST_CASE("device: programs give in batches and replayed what they give step by step") {
  size_t programs = 0;
  FakeCounts apart, together;
  for (const std::string &path : case_files()) {
    std::unique_ptr<Planned> run = planned_file(path);
    if (!run->problem.empty() || run->world->size() > 8 || run->plan->communicates.empty())
      continue;
    ThreadsOptions options = plain();
    options.runs = 3;
    options.counts = &apart;
    const std::vector<RankRun> want = run_on_threads(text_of(path), run->world->size(), options);
    if (!want[0].problem.empty())
      continue;
    options.batches = options.records = true;
    options.counts = &together;
    INFO(path);
    expect_same(run_on_threads(text_of(path), run->world->size(), options), want);
    ++programs;
  }
  WARN(programs << " programs, " << apart.launches << " launches one by one, " << together.launches
                << " in batches, " << together.replays << " replays");
  CHECK(programs > 20);
  CHECK(together.launches < apart.launches);
  CHECK(together.replays > programs);
}

TEST_CASE("device: a rank that does not come to one of a batch ends all, in a step of it") {
  for (uint32_t collective : {0u, 1u, 2u, 3u, 4u}) {
    ThreadsOptions options;
    options.devices.fault = FakeFault{FakeFault::Form::Absent, 1, collective};
    options.patience = milliseconds(1000);
    std::unique_ptr<Planned> run = planned(kSideBySide);
    REQUIRE(run->problem == "");
    for (const RankRun &rank : run_on_threads(kSideBySide, 4, options)) {
      INFO(collective << ": " << rank.problem);
      CHECK_FALSE(rank.problem.empty());
      // The gathers come first; what is reached is one of them, or one of the sums.
      if (rank.problem != "another rank failed") // it was done with all of it
        CHECK(run->plan->steps[rank.reached].form == StepForm::Communicate);
    }
  }
}

TEST_CASE("device: a device that breaks in the midst of a batch ends all") {
  ThreadsOptions options;
  options.devices.fault = FakeFault{FakeFault::Form::Broken, 2, 1};
  for (const RankRun &rank : run_on_threads(kSideBySide, 4, options))
    CHECK_FALSE(rank.problem.empty());
}

TEST_CASE("device: a stretch is recorded at its second run, and replayed with other data") {
  ThreadsOptions options;
  FakeCounts counts;
  options.records = true;
  options.runs = 5;
  options.counts = &counts;
  const std::vector<RankRun> got = run_on_threads(kSideBySide, 4, options);
  CHECK(counts.replays == 4 * 4);
  CHECK(got[0].recordings == 1);
  ThreadsOptions last = plain(); // of the last run alone
  last.seed = options.seed + 4;
  expect_same(got, run_on_threads(kSideBySide, 4, last));
}

TEST_CASE("device: a fault in what is replayed ends all, and the step is named") {
  ThreadsOptions options;
  options.records = true;
  options.runs = 4;
  options.patience = milliseconds(1000);
  options.devices.fault =
      FakeFault{FakeFault::Form::Absent, 3, 3 * 5 + 4}; // the last one of the fourth run
  std::unique_ptr<Planned> run = planned(kSideBySide);
  REQUIRE(run->problem == "");
  for (const RankRun &rank : run_on_threads(kSideBySide, 4, options)) {
    INFO(rank.problem);
    CHECK_FALSE(rank.problem.empty());
    if (rank.problem != "another rank failed")
      CHECK(run->plan->steps[rank.reached].form == StepForm::Communicate);
  }
}

TEST_CASE("device: where nothing can be recorded it is said, and steps are run one after another") {
  ThreadsOptions options;
  FakeCounts counts;
  options.records = true;
  options.runs = 3;
  options.devices.records = false;
  options.counts = &counts;
  const std::vector<RankRun> got = run_on_threads(kSideBySide, 4, options);
  CHECK(counts.replays == 0);
  CHECK(got[0].no_record.find("these devices record nothing") != std::string::npos);
  ThreadsOptions last = plain();
  last.seed = options.seed + 2;
  expect_same(got, run_on_threads(kSideBySide, 4, last));
}
