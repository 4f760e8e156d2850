// Each rank reads the program for itself, as processes do.
#include "tests/device/threads.h"

#include "runtime/tensor/element_bytes.h"

#include "ir/support/error.h"

#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <sstream>
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
    return make_error(run->problem);
  Clock::time_point since = Clock::now();
  auto patience = [&](uint32_t step, bool first) {
    if (first || step != out.reached)
      out.reached = step, since = Clock::now();
    return !shared.stopped && Clock::now() - since < shared.options.patience;
  };
  llvm::Expected<std::unique_ptr<DeviceLink>> link =
      DeviceLink::open(*shared.options.plugin, {rank, shared.size, rank, shared.size}, patience);
  if (!link)
    return link.takeError();
  const SpmdDevicePlugin &plugin = (*link)->plugin();
  SpmdId id{};
  if (llvm::Error error = (*link)->ask(plugin.connect, static_cast<const SpmdId *>(&id)))
    return error;
  {
    DeviceOptions own{.seed = shared.options.seed};
    own.batches = shared.options.batches, own.records = shared.options.records;
    own.on_no_record = [&](const std::string &why) { out.no_record = why; };
    DeviceBackend backend(**link, own);
    if (llvm::Error error =
            backend.prepare(run->checked->mutable_program(), *run->plan, *run->world))
      return error;
    const StepRange all = run->plan->all();
    for (uint64_t seed = own.seed; seed < own.seed + shared.options.runs; ++seed) {
      if (seed > own.seed && !backend.restart(seed))
        return make_error("a device backend does not run again");
      for (PlannedId param : run->plan->params) {
        const BufferId buffer = run->plan->values[param].buffer;
        if (!run->world->on(run->plan->buffers[buffer].mesh, rank))
          continue;
        if (llvm::Error error =
                backend.write(buffer, rank, input_for(*run, param, rank, Domain::Declared, seed)))
          return error;
      }
      since = Clock::now();
      for (uint32_t i = all.first; i < all.last;) {
        const StepRange steps{i, shared.options.stepwise ? step_after(*run->plan, i) : all.last};
        if (llvm::Error error = backend.run(steps, kNoDeadline))
          return error;
        i = steps.last;
      }
    }
    out.recordings = backend.recordings();
    // As processes do: nobody says that all went well before all have come to the end.
    ++shared.done;
    while (shared.done < shared.size && !shared.stopped)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    if (shared.stopped)
      return make_error("another rank failed");
    for (PlannedId output : run->plan->outputs) {
      const BufferId buffer = run->plan->values[output].buffer;
      out.outputs.emplace_back();
      if (run->world->on(run->plan->buffers[buffer].mesh, rank))
        if (llvm::Error error = backend.read(buffer, rank, out.outputs.back()))
          return error;
    }
    auto note = [&](const std::vector<Command> &commands, bool fused) {
      out.commands[fused] += commands.size();
      for (const Command &each : commands)
        out.bytes[fused] += traffic(each);
    };
    note(backend.lowered().commands_of(all), true);
    for (uint32_t i = all.first; i < all.last; i = step_after(*run->plan, i))
      note(backend.lowered().commands_of({i, i + 1}), false);
    out.host_ops = backend.lowered().host_ops(),
    out.device_steps = backend.lowered().device_steps();
  }
  return (*link)->finish();
}

// How far apart two tensors are, in units of what rounding to the element type may do to the
// largest number; whole numbers and truth values have to be the same.
double distance(const Tensor &got, const Tensor &want) {
  if (got.dtype != want.dtype || got.dims != want.dims)
    return INFINITY;
  double most = 0, apart = 0;
  auto compare = [&](double a, double b) {
    if (std::isnan(b) || std::isinf(b))
      apart = a == b || (std::isnan(a) && std::isnan(b)) ? apart : INFINITY;
    else
      apart = std::isfinite(a) ? std::max(apart, std::abs(a - b)) : INFINITY,
      most = std::max(most, std::abs(b));
  };
  if (want.is_complex())
    for (size_t i = 0; i < want.of<Complex>().size(); ++i) {
      compare(got.of<Complex>()[i].real(), want.of<Complex>()[i].real());
      compare(got.of<Complex>()[i].imag(), want.of<Complex>()[i].imag());
    }
  else
    for (size_t i = 0; i < want.of<double>().size(); ++i)
      compare(got.of<double>()[i], want.of<double>()[i]);
  if (apart == 0)
    return 0;
  const double unit = unit_roundoff(want.dtype);
  return unit == 0 ? INFINITY : apart / (unit * std::max(most, 1.0));
}

} // namespace

std::vector<RankRun> run_on_threads(const std::string &text, uint32_t ranks,
                                    const ThreadsOptions &options) {
  FakeWorld world(options.devices);
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
  if (options.counts) {
    options.counts->launches += world.counts().launches;
    options.counts->replays += world.counts().replays;
    options.counts->hangs += world.counts().hangs;
  }
  return runs;
}

std::string text_of(const std::string &path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string difference(const std::string &text, Totals &totals, bool stepwise,
                       const ThreadsOptions &options) {
  std::unique_ptr<Planned> run = planned(text);
  constexpr uint32_t kMostRanks = 8;
  if (!run->problem.empty() || run->world->size() > kMostRanks)
    return "";
  CpuRun cpu(*run);
  if (!cpu.problem().empty())
    return "";
  cpu.write();
  if (!cpu.run().empty())
    return "";
  std::vector<RankRun> ranks = run_on_threads(text, run->world->size(), options);
  ThreadsOptions by_step = options;
  by_step.stepwise = true;
  const std::vector<RankRun> alone =
      stepwise ? run_on_threads(text, run->world->size(), by_step) : ranks;
  ++totals.programs;
  totals.device_steps += ranks[0].device_steps;
  for (const auto &[op, count] : ranks[0].host_ops)
    totals.host_steps += count, totals.host_ops[op] += count;
  for (bool fused : {false, true}) {
    totals.commands[fused] += ranks[0].commands[fused];
    totals.bytes[fused] += ranks[0].bytes[fused];
  }
  for (RankId rank = 0; rank < ranks.size(); ++rank) {
    if (!alone[rank].problem.empty())
      return fmt::format("rank {}, step by step: {}", rank, alone[rank].problem);
    if (!ranks[rank].problem.empty())
      return fmt::format("rank {}: {}", rank, ranks[rank].problem);
    for (size_t place = 0; place < run->plan->outputs.size(); ++place) {
      const BufferId buffer = run->plan->values[run->plan->outputs[place]].buffer;
      if (!run->world->on(run->plan->buffers[buffer].mesh, rank))
        continue;
      if (pack_elements(ranks[rank].outputs[place]) != pack_elements(alone[rank].outputs[place]))
        return fmt::format("output {} on rank {} has other bits step by step", place, rank);
      const double apart = distance(ranks[rank].outputs[place], cpu.output(place, rank));
      // Sums of a few dozen products, in another order, and what functions make of that.
      if (!(apart <= 64))
        return fmt::format("output {} on rank {} is {} units off", place, rank, apart);
    }
  }
  return "";
}

} // namespace spmd::test
