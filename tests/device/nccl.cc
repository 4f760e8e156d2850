// The plug-in for NVIDIA devices itself, over simulated libraries: communicators that are made
// late, collectives whose positions NCCL lays down, and giving up in the midst of several of them.
#include "tests/device/threads.h"

#include <cstdlib>

using namespace spmd;
using namespace spmd::runtime;
using namespace spmd::test;

// What runtime/nccl/nccl.cc exports, by the name that this build gives it.
extern "C" const SpmdDevicePlugin *nccl_device_plugin(void);

namespace {

using std::chrono::milliseconds;

// Devices that are given up are left as they are: here they stay reachable.
SpmdStatus open_and_keep(const SpmdHost *host, const SpmdRanks *ranks, SpmdDevice **device,
                         SpmdDeviceFacts *facts) {
  static auto &kept = *new std::vector<SpmdDevice *>();
  static std::mutex mutex;
  const SpmdStatus status = nccl_device_plugin()->open(host, ranks, device, facts);
  std::lock_guard lock(mutex);
  kept.push_back(*device);
  return status;
}

ThreadsOptions over_nccl() {
  static const SpmdDevicePlugin plugin = [] {
    ::setenv("CUDA_MODULE_LOADING", "EAGER", 0); // as `open` does, here before there are threads
    SpmdDevicePlugin table = *nccl_device_plugin();
    table.open = open_and_keep;
    return table;
  }();
  ThreadsOptions options;
  options.plugin = &plugin;
  return options;
}

// Collectives along two axes, one behind the other: kernels of two communicators on one stream.
constexpr const char *kTwoGroups = R"(mesh m { dp = 2, tp = 2 }
%x = input f32[8@dp, 16@tp]
%a = all_gather %x { axis = tp, src = S(1), dst = R }
%b = all_gather %a { axis = dp, src = S(0), dst = R }
%c = mul %b, %b
%d = all_to_all %x { axis = tp, src = S(1), dst = S(0) }
output %c
output %d
)";

struct Ends {
  bool all_failed = true;
  FakeCounts counts;
  std::string problems;
};
Ends run_with(ThreadsOptions options) {
  Ends ends;
  options.counts = &ends.counts;
  for (const RankRun &run : run_on_threads(kTwoGroups, 4, options)) {
    ends.all_failed = ends.all_failed && !run.problem.empty();
    ends.problems += run.problem + "; ";
  }
  return ends;
}

} // namespace

TEST_CASE("nccl: groups are there once the communicator that is split says so") {
  const Ends ends = run_with(over_nccl());
  CHECK(ends.problems == "; ; ; ; ");
  CHECK(ends.counts.hangs == 0);
}

TEST_CASE("nccl: programs give over simulated libraries what they give on the cpu backend") {
  Totals totals;
  for (const char *path : {"tests/cluster/collectives2.spmd", "tests/cluster/rows4.spmd",
                           "tests/cluster/axes8.spmd", "tests/cases/run/mlp.spmd",
                           "examples/vocab_parallel/good.spmd", "examples/moe_dispatch/good.spmd",
                           "examples/context_parallel/ring.spmd", "examples/fsdp/good.spmd"}) {
    INFO(path);
    CHECK(difference(text_of(path), totals, true, over_nccl()) == "");
  }
  CHECK(totals.programs > 6);
}

TEST_CASE("nccl: sums that are added in a wider element are given where NCCL lays down") {
  Totals totals;
  for (const char *element : {"bf16", "f16", "bool", "i16", "i32", "u8", "f8e4m3", "c64"})
    for (const char *op : {"sum", "avg", "max"})
      for (const char *axis : {"a", "b", "(a, b)"}) {
        const std::string text =
            std::string("trace { mode = local }\nmesh m { a = 2, b = 3 }\n%x = input ") + element +
            "[6, 4] V\n%y = reduce_scatter %x { axis = " + axis + ", op = " + op +
            ", op_dtype = f32, src = V, dst = S(0) }\noutput %y\n";
        const std::string plain = std::string(text).erase(text.find(", op_dtype = f32"), 16);
        for (const std::string &each : {text, plain}) {
          const std::string found = difference(each, totals, false, over_nccl());
          INFO(each);
          const bool refused = found.find("devices ") != std::string::npos;
          CHECK((found.empty() || refused));
        }
      }
  CHECK(totals.programs > 40);
}

TEST_CASE("nccl: neighbours in a batch and replays give the same") {
  ThreadsOptions options = over_nccl();
  options.records = true;
  options.runs = 4;
  const Ends ends = run_with(options);
  CHECK(ends.problems == "; ; ; ; ");
  CHECK(ends.counts.replays > 0);
  CHECK(ends.counts.hangs == 0);
}

// The kernel of one communicator waits behind that of another one, which waits for a rank that does
// not come.
TEST_CASE("nccl: a run is given up at once, whatever waits behind what") {
  for (uint32_t rank = 0; rank < 4; ++rank)
    for (uint32_t collective : {0u, 1u}) {
      ThreadsOptions options = over_nccl();
      options.devices.fault = FakeFault{FakeFault::Form::Absent, rank, collective};
      options.patience = milliseconds(300);
      const Ends ends = run_with(options);
      INFO(rank << ", " << collective << ": " << ends.problems);
      CHECK(ends.all_failed);
      CHECK(ends.counts.hangs == 0);
    }
}

TEST_CASE("nccl: a run is given up at once where graphs hold what is given up") {
  ThreadsOptions options = over_nccl();
  options.records = true;
  options.runs = 4;
  // In a run that is replayed.
  options.devices.fault = FakeFault{FakeFault::Form::Broken, 1, 5};
  options.patience = milliseconds(1000);
  const Ends ends = run_with(options);
  INFO(ends.problems);
  CHECK(ends.all_failed);
  CHECK(ends.counts.hangs == 0);
}

TEST_CASE("nccl: a communicator that breaks ends all, and says so") {
  ThreadsOptions options = over_nccl();
  options.devices.fault = FakeFault{FakeFault::Form::Broken, 2, 1};
  const Ends ends = run_with(options);
  INFO(ends.problems);
  CHECK(ends.all_failed);
  CHECK(ends.problems.find("between the devices") != std::string::npos);
  CHECK(ends.counts.hangs == 0);
}
