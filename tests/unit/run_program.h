// Programs that are checked, planned and run on the cpu backend: what the tests of it share.
#pragma once

#include "runtime/backends/backend.h"

#include "ir/input/input.h"

#include "tests/unit/catch.h"

#include <functional>
#include <string>

namespace spmd::runtime {

// A program with its plan. Pieces refer to one another: it stays where it was made.
struct Planned {
  std::optional<checker::CheckedProgram> checked;
  std::optional<World> world;
  std::optional<Plan> plan;
  std::string problem; // why there is none; empty if there is

  const ir::Program &program() const { return checked->program(); }
};
std::unique_ptr<Planned> planned(std::string_view text);
// None if it cannot be read, or has a finding; then `problem` says so.
std::unique_ptr<Planned> planned_file(const std::string &path);

// Small whole numbers that uphold the type: equal where it says so, blocks of one tensor where it
// is cut. Integers are 0 or 1, so that they can stand for positions.
Tensor input_for(const Planned &run, PlannedId param, RankId rank, Domain domain, uint64_t seed);

// Fails the test on an error.
void ok(llvm::Error error);

class CpuRun {
public:
  explicit CpuRun(Planned &run, CpuOptions options = {});
  // Empty, or why it cannot be run.
  const std::string &problem() const { return problem_; }
  void write(uint64_t seed = 0);
  void write(PlannedId param, RankId rank, const Tensor &tensor);
  std::string run(StepRange steps);
  std::string run() { return run(run_.plan->all()); }
  Tensor read(PlannedId value, RankId rank);
  // The output of that place.
  Tensor output(size_t place, RankId rank) { return read(run_.plan->outputs[place], rank); }

private:
  Planned &run_;
  CpuOptions options_;
  std::unique_ptr<Backend> backend_;
  std::string problem_;
};

// All programs of the tests, by path.
std::vector<std::string> case_files();

} // namespace spmd::runtime
