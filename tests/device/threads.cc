// Each rank reads the program for itself, as processes do.
#include "tests/device/threads.h"

#include <atomic>
#include <thread>

namespace spmd::test {

using namespace runtime;
using Clock = std::chrono::steady_clock;

namespace {

struct Shared {
  std::atomic<bool> stopped{false};
  std::atomic<uint32_t> done{0};
  ThreadsOptions options;
  uint32_t size = 0;
};

llvm::Error run_rank(const std::string &text, uint32_t rank, Shared &shared, RankRun &out) {
  std::unique_ptr<Planned> run = planned(text);
  if (!run->problem.empty())
    return run_error(run->problem);
  Clock::time_point since = Clock::now();
  auto patience = [&](uint32_t step, bool first) {
    if (first || step != out.reached)
      out.reached = step, since = Clock::now();
    return !shared.stopped && Clock::now() - since < shared.options.patience;
  };
  llvm::Expected<std::unique_ptr<DeviceLink>> link =
      DeviceLink::open(FakeWorld::plugin(), {rank, shared.size, rank, shared.size}, patience);
  if (!link)
    return link.takeError();
  const SpmdDevicePlugin &plugin = (*link)->plugin();
  SpmdId id{};
  if (llvm::Error error = (*link)->ask(plugin.connect, static_cast<const SpmdId *>(&id)))
    return error;
  {
    DeviceBackend backend(**link, {.seed = shared.options.seed});
    if (llvm::Error error = backend.prepare(run->checked->tables(), *run->plan, *run->world))
      return error;
    for (PlannedId param : run->plan->params) {
      const BufferId buffer = run->plan->values[param].buffer;
      if (!run->world->on(run->plan->buffers[buffer].mesh, rank))
        continue;
      if (llvm::Error error = backend.write(
              buffer, rank, input_for(*run, param, rank, Domain::Declared, shared.options.seed)))
        return error;
    }
    since = Clock::now();
    if (llvm::Error error = backend.run(run->plan->all(), kNoDeadline))
      return error;
    // As processes do: nobody says that all went well before all have come to the end.
    ++shared.done;
    while (shared.done < shared.size && !shared.stopped)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    if (shared.stopped)
      return run_error("another rank failed");
    for (PlannedId output : run->plan->outputs) {
      const BufferId buffer = run->plan->values[output].buffer;
      out.outputs.emplace_back();
      if (run->world->on(run->plan->buffers[buffer].mesh, rank))
        if (llvm::Error error = backend.read(buffer, rank, out.outputs.back()))
          return error;
    }
    out.host_ops = backend.host_ops(), out.device_steps = backend.device_steps();
  }
  return (*link)->finish();
}

} // namespace

std::vector<RankRun> run_on_threads(const std::string &text, uint32_t ranks,
                                    const ThreadsOptions &options) {
  FakeWorld world(options.fault);
  Shared shared;
  shared.options = options;
  shared.size = ranks;
  std::vector<RankRun> runs(ranks);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      world.enter();
      runs[rank].problem = llvm::toString(run_rank(text, rank, shared, runs[rank]));
      if (!runs[rank].problem.empty())
        shared.stopped = true;
    });
  for (std::thread &thread : threads)
    thread.join();
  return runs;
}

} // namespace spmd::test
