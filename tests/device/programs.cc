// Programs give on devices what they give on the cpu backend.
#include "tests/device/threads.h"

#include "runtime/bounds.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

using namespace spmd;
using namespace spmd::runtime;
using namespace spmd::test;

namespace {

std::string text_of(const std::string &path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// How far apart two tensors are, in units of what rounding to the element type may do to the largest number;
// whole numbers and truth values have to be the same.
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

struct Totals {
  size_t programs = 0, host_steps = 0, device_steps = 0;
  std::map<std::string, size_t> host_ops;
};

// Empty, or what differs.
std::string difference(const std::string &text, Totals &totals) {
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
  std::vector<RankRun> ranks = run_on_threads(text, run->world->size());
  ++totals.programs;
  totals.device_steps += ranks[0].device_steps;
  for (const auto &[op, count] : ranks[0].host_ops)
    totals.host_steps += count, totals.host_ops[op] += count;
  for (RankId rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].problem.empty())
      return fmt::format("rank {}: {}", rank, ranks[rank].problem);
    for (size_t place = 0; place < run->plan->outputs.size(); ++place) {
      const BufferId buffer = run->plan->values[run->plan->outputs[place]].buffer;
      if (!run->world->on(run->plan->buffers[buffer].mesh, rank))
        continue;
      const double apart = distance(ranks[rank].outputs[place], cpu.output(place, rank));
      // Sums of a few dozen products, in another order, and what functions make of that.
      if (!(apart <= 64))
        return fmt::format("output {} on rank {} is {} units off", place, rank, apart);
    }
  }
  return "";
}

} // namespace

TEST_CASE("device: what the test programs compute is what they compute on the cpu backend") {
  Totals totals;
  for (const std::string &path : case_files()) {
    std::string found = difference(text_of(path), totals);
    if (!found.empty())
      FAIL_CHECK(path << ": " << found);
  }
  std::string on_host;
  for (const auto &[op, count] : totals.host_ops)
    on_host += fmt::format(" {} {}", count, op);
  WARN(totals.programs << " programs; " << totals.device_steps << " steps on devices, "
                       << totals.host_steps << " computed on the host:" << on_host);
  CHECK(totals.programs > 50);
  CHECK(totals.device_steps > 10 * totals.host_steps);
}
