// All programs of the tests that can be planned are run: every access against the memory plan, and
// with one thread and two.
#include "tests/unit/run_program.h"

#include "llvm/ADT/STLExtras.h"

#include <map>

namespace spmd::runtime {
namespace {

// Bits, so that NaN equals itself.
bool same_bits(const Tensor &a, const Tensor &b) {
  if (a.dims != b.dims || a.dtype != b.dtype || a.cells.index() != b.cells.index())
    return false;
  return a.visit([&](const auto &cells) {
    using T = typename std::decay_t<decltype(cells)>::value_type;
    const std::vector<T> &other = b.of<T>();
    return cells.empty() || std::memcmp(cells.data(), other.data(), cells.size() * sizeof(T)) == 0;
  });
}

struct Tally {
  size_t files = 0, planned = 0, run = 0, values = 0;
  std::map<std::string, size_t> problems;
  void problem(const std::string &path, std::string text) { ++problems[path + ": " + text]; }
};

// Instruction by instruction in both runs; results are compared as they come.
void run_twice(const std::string &path, Planned &run, Tally &tally) {
  CpuOptions one, two;
  one.check_memory = true;
  two.threads = 2;
  CpuRun first(run, one), second(run, two);
  if (!first.problem().empty())
    return tally.problem(path, first.problem());
  first.write(1);
  second.write(1);
  for (const Execution &each : run.plan->executions) {
    if (each.nested || each.call != 0)
      continue;
    std::string problem = first.run(each.steps);
    if (!problem.empty()) {
      REQUIRE(problem.find("buffer") == std::string::npos);
      return tally.problem(path, problem);
    }
    REQUIRE(second.run(each.steps) == "");
    for (PlannedId id : run.plan->list(each.results)) {
      const PlannedValue &value = run.plan->values[id];
      for (RankId rank : run.world->ranks(run.plan->buffers[value.buffer].mesh))
        REQUIRE(same_bits(first.read(id, rank), second.read(id, rank)));
      ++tally.values;
    }
  }
  ++tally.run;
}

} // namespace

TEST_CASE("cpu: every program of the tests runs, with the same results on one thread and on two") {
  Tally tally;
  for (const std::string &path : case_files()) {
    INFO(path);
    std::unique_ptr<Planned> run = planned_file(path);
    ++tally.files;
    if (!run->checked)
      continue;
    if (!run->plan) {
      tally.problem(path, run->problem);
      continue;
    }
    ++tally.planned;
    run_twice(path, *run, tally);
  }
  std::string list;
  for (const auto &[text, count] : tally.problems)
    list += text + "\n";
  WARN(tally.files << " programs, " << tally.planned << " planned, " << tally.run << " run, "
                   << tally.values << " values compared; not run:\n"
                   << list);
  REQUIRE(tally.run > 20);
  REQUIRE(tally.values > 200);
}

} // namespace spmd::runtime
