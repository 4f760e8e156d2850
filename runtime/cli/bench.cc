// A run and a run of bare calls take turns: other load on the machine then slows both.
#include "runtime/cli/bench.h"

#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <cstring>

namespace spmd::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// Libraries connect in the first run, the second one may be recorded, the third is replayed.
constexpr unsigned kWarmUps = 3;

class Bench {
public:
  Bench(const Plan &plan, Backend &backend, Team *team, uint64_t seed)
      : plan_(plan), backend_(backend), team_(team), seed_(seed) {}

  // A run may leave other data where inputs were, so they are written before each.
  llvm::Error keep(const Inputs &inputs, const InputOptions &options) {
    return inputs.visit(backend_, plan_, options,
                        [&](BufferId buffer, llvm::ArrayRef<RankId> ranks, Tensor data) {
                          inputs_.push_back({buffer, ranks.vec(), std::move(data)});
                          return llvm::Error::success();
                        });
  }

  llvm::Expected<RunTimes> run(unsigned count) {
    RunTimes times;
    auto run_all = [&] { return backend_.run(plan_.all(), kNoDeadline); };
    llvm::Error error = llvm::Error::success();
    for (unsigned i = 0; !error && i < kWarmUps; ++i)
      error = timed(run_all).takeError();
    if (!error)
      error = try_bare(times.no_bare);
    auto add = [&](std::vector<double> &to, llvm::Expected<double> seconds) {
      if (seconds)
        to.push_back(*seconds);
      return seconds.takeError();
    };
    for (unsigned i = 0; !error && i < count; ++i) {
      error = add(times.runs, timed(run_all));
      if (!error && times.no_bare.empty())
        error = add(times.bare, timed([&] { return backend_.run_bare(); }));
    }
    if (error)
      return error;
    return times;
  }

private:
  llvm::Error restart() {
    if (!backend_.restart(seed_))
      return make_error("this backend runs a plan only once");
    for (const Input &input : inputs_)
      for (RankId rank : input.ranks)
        if (llvm::Error error = backend_.write(input.buffer, rank, input.data))
          return error;
    return llvm::Error::success();
  }

  // Seconds of the slowest rank; on rank 0, elsewhere its own.
  template <class Run> llvm::Expected<double> timed(Run run) {
    if (llvm::Error error = restart())
      return error;
    if (llvm::Error error = meet())
      return error;
    const Clock::time_point begin = Clock::now();
    if (llvm::Error error = run())
      return error;
    const std::chrono::duration<double> took = Clock::now() - begin;
    return slowest(took.count());
  }

  // All ranks are here.
  llvm::Error meet() {
    if (!team_)
      return llvm::Error::success();
    if (llvm::Error error = team_->gather("").takeError())
      return error;
    return team_->share("").takeError();
  }
  llvm::Expected<double> slowest(double seconds) {
    if (!team_)
      return seconds;
    llvm::Expected<std::vector<std::string>> all =
        team_->gather({reinterpret_cast<const char *>(&seconds), sizeof seconds});
    if (!all)
      return all.takeError();
    for (const std::string &each : *all) {
      double other = 0;
      std::memcpy(&other, each.data(), sizeof other);
      seconds = std::max(seconds, other);
    }
    return seconds;
  }

  // Bare calls need all ranks: where one has none, no rank makes any.
  llvm::Error try_bare(std::string &why_not) {
    if (llvm::Error error = restart())
      return error;
    llvm::Expected<std::string> none = backend_.prepare_bare();
    if (!none)
      return none.takeError();
    why_not = std::move(*none);
    if (!team_)
      return llvm::Error::success();
    llvm::Expected<std::vector<std::string>> all = team_->gather(why_not);
    if (!all)
      return all.takeError();
    auto first = llvm::find_if(*all, [](const std::string &each) { return !each.empty(); });
    llvm::Expected<std::string> shared = team_->share(first == all->end() ? "" : *first);
    if (!shared)
      return shared.takeError();
    why_not = std::move(*shared);
    return llvm::Error::success();
  }

  struct Input {
    BufferId buffer;
    std::vector<RankId> ranks;
    Tensor data;
  };
  const Plan &plan_;
  Backend &backend_;
  Team *team_;
  uint64_t seed_;
  std::vector<Input> inputs_;
};

double median(std::vector<double> times) {
  llvm::sort(times);
  const size_t half = times.size() / 2;
  return times.size() % 2 ? times[half] : (times[half - 1] + times[half]) / 2;
}

std::string print_line(std::string_view name, const std::vector<double> &times) {
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  return fmt::format("{:<11} median {:.3f} ms, least {:.3f}, most {:.3f}", name,
                     median(times) * 1e3, *least * 1e3, *most * 1e3);
}

} // namespace

llvm::Expected<RunTimes> time_runs(const Plan &plan, Backend &backend, const Inputs &inputs,
                                   const InputOptions &options, Team *team, unsigned count) {
  Bench bench(plan, backend, team, options.seed);
  if (llvm::Error error = bench.keep(inputs, options))
    return error;
  return bench.run(count);
}

std::string print_times(const RunTimes &times) {
  std::string text = print_line(fmt::format("{} runs:", times.runs.size()), times.runs) + "\n";
  if (times.bare.empty())
    return text + fmt::format("no bare calls to compare with: {}\n", times.no_bare);
  return text + print_line("bare calls:", times.bare) +
         fmt::format("\nruns take {:.3f} of bare calls\n", median(times.runs) / median(times.bare));
}

} // namespace spmd::runtime
