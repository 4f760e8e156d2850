// Transitions over several axes, flattened ones, other meshes, uneven blocks: where shards are
// moved the tensor that is meant stays.
#include "tests/unit/run_program.h"

#include <fmt/format.h>

#include <map>

namespace spmd::runtime {
namespace {

// The tensor that the ranks mean together: blocks joined, addends added; what is equal must be.
std::vector<double> denoted(Planned &run, CpuRun &cpu, PlannedId id) {
  const PlannedValue &value = run.plan->values[id];
  const ir::Type &type = run.program().types[value.known.type];
  llvm::Expected<Placement> place =
      Placement::make(run.program(), *run.world, value.known, "a value");
  REQUIRE(!!place);
  ir::AxisSet pending = type.of(ir::Kind::Partial) - type.zero();
  REQUIRE(per_rank_axes(type).empty());
  // Addends come from each coordinate on the pending axes once.
  std::map<uint64_t, std::map<int64_t, double>> wholes;
  for (RankId rank : run.world->ranks(place->mesh())) {
    uint64_t addend = 0;
    for (ir::AxisId axis : pending)
      addend =
          addend * 64 + static_cast<uint64_t>(run.world->coordinate(place->mesh(), axis, rank));
    Block block = place->block(*run.world, rank);
    Tensor tensor = cpu.read(id, rank);
    REQUIRE(tensor.dims == block.dims);
    for (int64_t i = 0; i < tensor.size(); ++i) {
      int64_t at = 0, left = i;
      llvm::SmallVector<int64_t, 5> index(block.dims.size());
      for (size_t d = block.dims.size(); d-- > 0; left /= block.dims[d])
        index[d] = left % block.dims[d];
      for (size_t d = 0; d < block.dims.size(); ++d)
        at = at * block.whole[d] + block.first[d] + index[d];
      double cell = tensor.of<double>()[static_cast<size_t>(i)];
      auto [known, added] = wholes[addend].try_emplace(at, cell);
      REQUIRE(known->second == cell);
    }
  }
  std::vector<double> sum(static_cast<size_t>(count(place->whole())), 0);
  for (const auto &[addend, cells] : wholes) {
    REQUIRE(cells.size() == sum.size());
    for (const auto &[at, cell] : cells)
      sum[static_cast<size_t>(at)] += cell;
  }
  return sum;
}

void keeps_meaning(std::string_view mesh, std::string_view input, std::string_view call) {
  std::string text = fmt::format("{}\n%x = input {}\n%y = {}\noutput %y\n", mesh, input, call);
  INFO(text);
  std::unique_ptr<Planned> run = planned(text);
  REQUIRE(run->problem == "");
  for (Domain domain : {Domain::Declared, Domain::F64}) {
    CpuOptions options;
    options.domain = domain;
    options.check_memory = true;
    CpuRun cpu(*run, options);
    REQUIRE(cpu.problem() == "");
    cpu.write(7);
    std::vector<double> before = denoted(*run, cpu, run->plan->params[0]);
    REQUIRE(cpu.run() == "");
    REQUIRE(denoted(*run, cpu, run->plan->outputs[0]) == before);
  }
}

} // namespace

TEST_CASE("cpu: shards that move over several axes keep what is meant") {
  constexpr std::string_view grid = "mesh m { dp = 2, tp = 3, all = (dp, tp) }";
  const std::pair<const char *, const char *> cases[] = {
      {"f32[2@(dp,tp), 4]", "all_gather %x { axis = tp, src = S(0), dst = R }"},
      {"f32[2@(dp,tp), 4]", "all_gather %x { axis = (dp, tp), src = S(0), dst = R }"},
      {"f32[4, 2@(dp,tp)]", "all_gather %x { axis = (dp, tp), src = S(1), dst = I }"},
      {"f32[4, 2@(dp,tp)]", "all_gather %x { axis = all, src = S(1), dst = R }"},
      {"f32[2@(tp,dp), 4]", "all_gather %x { axis = (tp, dp), src = S(0), dst = R }"},
      {"f32[2@dp, 3@tp]", "all_gather %x { axis = (dp, tp), src = [S(0), S(1)], dst = R }"},
      {"f32[6@dp, 6@tp]", "all_to_all %x { axis = tp, src = S(1), dst = S(0) }"},
      {"f32[12, 2@(dp,tp), 5]", "all_to_all %x { axis = (dp, tp), src = S(1), dst = S(0) }"},
      {"f32[12, 2@(dp,tp), 6]", "all_to_all %x { axis = all, src = S(1), dst = S(2) }"},
      {"f32[12, 6] P", "reduce_scatter %x { axis = (dp, tp), src = P, dst = S(1) }"},
      {"f32[12, 6] P@tp S(0)@dp", "reduce_scatter %x { axis = tp, src = P, dst = S(0) }"},
      {"f32[12, 6] P", "reduce_scatter %x { axis = (dp, tp), src = P, dst = [S(0), S(1)] }"},
      {"f32[12, 6] P", "all_reduce %x { axis = (dp, tp), src = P, dst = R }"},
      {"f32[12, 6] P", "all_reduce %x { axis = (dp, tp), src = P, dst = [R, I] }"},
      {"f32[12, 6] R", "convert %x { axis = (dp, tp), src = R, dst = S(1) }"},
      {"f32[12, 6] R", "convert %x { axis = (tp, dp), src = R, dst = S(0) }"},
      {"f32[12, 6] R", "convert %x { axis = (dp, tp), src = R, dst = P }"},
      {"f32[12, 6] I", "convert %x { axis = tp, src = I, dst = S(1) }"},
      {"f32[2@(dp,tp), 6]", "convert %x { axis = (dp, tp), src = S(0), dst = P, expert = true }"},
      {"f32[2, 2@(dp,tp)]", "convert %x { axis = tp, src = S(1), dst = P, expert = true }"},
  };
  for (const auto &[input, call] : cases)
    keeps_meaning(grid, input, call);
}

TEST_CASE("cpu: uneven blocks keep what is meant") {
  constexpr std::string_view grid = "mesh m { dp = 2, tp = 3 }";
  const std::pair<const char *, const char *> cases[] = {
      {"f32[3@tp, 2] of [7, 2] R@dp", "all_gather %x { axis = tp, src = S(0), dst = R }"},
      {"f32[2, 3@tp] of [2, 7] R@dp", "all_gather %x { axis = tp, src = S(1), dst = R }"},
      {"f32[4, 2@(dp,tp)] of [4, 9]", "all_gather %x { axis = (dp, tp), src = S(1), dst = R }"},
      {"f32[4, 2@(dp,tp)] of [4, 9]", "all_gather %x { axis = tp, src = S(1), dst = R }"},
      {"f32[6, 3@tp] of [6, 8] R@dp", "all_to_all %x { axis = tp, src = S(1), dst = S(0) }"},
      {"f32[3@tp, 6] of [8, 6] R@dp", "all_to_all %x { axis = tp, src = S(0), dst = S(1) }"},
      {"f32[7, 4] P@tp R@dp",
       "reduce_scatter %x { axis = tp, src = P, dst = S(0), splits = [4, 2, 1] }"},
      {"f32[4, 7] P@tp R@dp",
       "reduce_scatter %x { axis = tp, src = P, dst = S(1), splits = [0, 2, 5] }"},
      {"f32[4, 7] R", "convert %x { axis = tp, src = R, dst = S(1), splits = [0, 2, 5] }"},
      {"f32[4, 3@tp] of [4, 7] R@dp",
       "convert %x { axis = tp, src = S(1), dst = P, expert = true }"},
  };
  for (const auto &[input, call] : cases)
    keeps_meaning(grid, input, call);
}

TEST_CASE("cpu: meshes over the same ranks, and groups with strides") {
  // tp is the outer axis of the ranks, dp the inner one.
  keeps_meaning("mesh m { dp = 2:1, tp = 3:2 }", "f32[2@(dp,tp), 4]",
                "all_gather %x { axis = (dp, tp), src = S(0), dst = R }");
  std::unique_ptr<Planned> run = planned(R"(mesh e { ep = 6 }
mesh m { dp = 2, tp = 3 }
%x = input f32[2@(dp,tp), 4]
%e = reinterpret_mesh %x { mesh = e }
with { mesh = e } {
  %y = all_gather %e { axis = ep, src = S(0), dst = R }
}
output %y
)");
  REQUIRE(run->problem == "");
  CpuRun cpu(*run);
  cpu.write();
  std::vector<double> before = denoted(*run, cpu, run->plan->params[0]);
  REQUIRE(cpu.run() == "");
  REQUIRE(denoted(*run, cpu, run->plan->outputs[0]) == before);
}

TEST_CASE("cpu: coordinates, scales, what passes") {
  std::unique_ptr<Planned> run = planned(R"(trace { mode = local }
mesh m { dp = 2, tp = 3 }
%x = input f32[2] R
%i = axis_index { axis = (tp, dp) }
%s = scale %x { by = dp/tp }
%t = assert_type %x { type = R }
output %i
output %s: f32[2] R
output %t
)");
  REQUIRE(run->problem == "");
  CpuRun cpu(*run);
  cpu.write();
  REQUIRE(cpu.run() == "");
  for (RankId rank = 0; rank < 6; ++rank) {
    REQUIRE(cpu.output(0, rank).of<double>()[0] == (rank % 3) * 2 + rank / 3);
    double x = cpu.output(2, rank).of<double>()[1];
    REQUIRE(cpu.output(1, rank).of<double>()[1] == rounded(x * 2 / 3, ir::DType::F32));
  }
}

} // namespace spmd::runtime
