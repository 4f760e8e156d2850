// Plans of redistributions against everything that is not the planner: all states without a
// heuristic, data on all ranks, the adjoint, other algorithms. Pairs of types are drawn from all
// types of small meshes.
#include "rules/redistribute/numeric_problem.h"
#include "rules/redistribute/plan.h"
#include "rules/redistribute/prove.h"
#include "rules/redistribute/transpose.h"
#include "rules/redistribute/verify.h"
#include "tests/property/redistribute_execution.h"
#include "tests/property/redistribute_opponents.h"
#include "tests/unit/catch.h"
#include "tests/unit/redistribute_sample.h"

#include <functional>
#include <limits>

namespace spmd::property {
namespace {

using namespace redistribute_test;
using ir::AxisId;
using ir::Kind;

// Every type of a tensor on the mesh: kinds, dimensions, orders.
std::vector<ir::TypeId> all_types(ir::Program &program, unsigned rank, std::vector<Kind> kinds) {
  std::vector<ir::TypeId> types;
  llvm::SmallVector<AxisId, 4> axes;
  for (AxisId axis : program.meshes[ir::MeshId{0}].typed_axes())
    axes.push_back(axis);
  // An axis at a time, at any place among those that shard the dimension already.
  std::function<void(size_t, std::vector<std::vector<AxisId>>, ir::Type)> add =
      [&](size_t i, std::vector<std::vector<AxisId>> dims, ir::Type type) {
        if (i == axes.size()) {
          for (unsigned dim = 0; dim < rank; ++dim)
            for (unsigned place = 0; place < dims[dim].size(); ++place) {
              type.set_kind(dims[dim][place], Kind::Varying);
              type.set_shard(dims[dim][place], dim, place);
            }
          types.push_back(program.types.add(type));
          return;
        }
        for (Kind kind : kinds) {
          ir::Type next = type;
          next.set_kind(axes[i], kind);
          add(i + 1, dims, next);
        }
        for (unsigned dim = 0; dim < rank; ++dim)
          for (size_t place = 0; place <= dims[dim].size(); ++place) {
            auto next = dims;
            next[dim].insert(next[dim].begin() + static_cast<ptrdiff_t>(place), axes[i]);
            add(i + 1, next, type);
          }
      };
  ir::Type type;
  type.set_mesh(ir::MeshId{0});
  add(0, std::vector<std::vector<AxisId>>(rank), type);
  return types;
}

struct Setting {
  const char *mesh;
  unsigned rank;
  std::vector<Kind> kinds;
  const char *shape;
};

const Kind R = Kind::Replicate, I = Kind::Invariant, P = Kind::Partial, Reduced = Kind::Reduced;

std::vector<Setting> settings() {
  std::vector<Setting> list;
  for (auto [mesh, shape] : {std::pair{"a2b2", "8x12x4"},
                             {"a2b3", "12x6x18"},
                             {"a2b4", "8x16x8"},
                             {"a4b2", "16x8x24"},
                             {"a2b2c2", "8x16x8"},
                             {"a2b3c2", "12x24x36"}})
    for (unsigned rank = 1; rank <= 3; ++rank) {
      list.push_back({mesh, rank, {R}, shape});
      list.push_back({mesh, rank, {R, P}, shape});
    }
  return list;
}

std::string shape_of(const Setting &setting) {
  llvm::SmallVector<llvm::StringRef, 3> parts;
  llvm::StringRef(setting.shape).split(parts, 'x');
  std::string text;
  for (unsigned i = 0; i < setting.rank; ++i)
    text += (i ? "x" : "") + parts[i].str();
  return text;
}

// Calls `check` with requests between types of the setting: all of them, or about `most`, evenly
// spread.
template <class Check>
void for_each_pair(const Setting &setting, size_t most, bool gradient, Check check,
                   const rd::Topology &topology = {}) {
  ir::Program program = program_on(setting.mesh);
  std::vector<ir::TypeId> types = all_types(program, setting.rank, setting.kinds);
  ir::ShapeId shape = read_shape(program, shape_of(setting));
  rd::Planner planner(program, topology);
  rules::Rules rules(program);
  size_t pairs = types.size() * types.size(), step = pairs / most + 1;
  if (step > 1)
    step |= 1;
  for (size_t i = 0; i < pairs; i += step) {
    rd::Request request{types[i / types.size()], types[i % types.size()], shape, rd::kOwnCap,
                        gradient};
    INFO(setting.mesh << " " << shape_of(setting) << ": "
                      << rd::print_spec(program, program.types[request.source], setting.rank)
                      << " -> "
                      << rd::print_spec(program, program.types[request.target], setting.rank));
    if (rd::refuse(program, request))
      continue;
    const rd::Plan &plan = planner.plan(request);
    INFO(steps_of(program, plan, setting.rank));
    check(program, planner, rules, request, plan);
  }
}

std::vector<int> extents_of(const ir::Program &program, ir::ShapeId shape) {
  std::vector<int> extents;
  for (ir::Extent extent : program.shapes[shape].dims)
    extents.push_back(static_cast<int>(extent.number()));
  return extents;
}

// The identity on what is denoted, and the transpose its adjoint.
void execute(ir::Program &program, const rd::Request &request, const rd::Plan &plan,
             std::mt19937 &random) {
  RankGrid grid(program, ir::MeshId{0});
  std::vector<int> whole = extents_of(program, request.shape);
  const ir::Type source = program.types[request.source], target = program.types[request.target];
  auto [x, meant] = grid.random(source, whole, random);
  Ranks y = x;
  for (const rd::Step &step : plan.steps)
    y = grid.run(step, y);
  REQUIRE(grid.denotes(target, y, meant));
  auto [g, ignored] = grid.random(target.dual(), whole, random);
  Ranks back = g;
  rd::Plan dual = rd::transpose(program, plan);
  for (const rd::Step &step : dual.steps)
    back = grid.run(step, back);
  REQUIRE(grid.pairing(target, y, g) == grid.pairing(source, x, back));
}

void certify(ir::Program &program, rules::Rules &rules, const rd::Request &request,
             const rd::Plan &plan) {
  REQUIRE(rd::verify(program, rules, request, plan) == "");
  rd::Plan dual = rd::transpose(program, plan);
  REQUIRE(rd::verify(program, rules, rd::transpose(program, request), dual) == "");
  REQUIRE(dual.bytes == plan.backward_bytes);
  rd::Plan again = rd::transpose(program, dual), plain = plan;
  for (rd::Step &step : plain.steps)
    step.padded_bytes = step.bytes; // one price is kept per direction
  REQUIRE(again.steps == plain.steps);
}

} // namespace

// Nothing that the search leaves out is cheaper.
static void prove_all(const Setting &setting, size_t most, bool gradient,
                      const rd::Topology &topology = {}) {
  for_each_pair(
      setting, most, gradient,
      [](ir::Program &program, rd::Planner &planner, rules::Rules &, const rd::Request &request,
         const rd::Plan &plan) {
        REQUIRE(plan.proven);
        REQUIRE(plan.within_cap);
        REQUIRE(plan.bound.value_or(0) <= plan.bytes);
        REQUIRE(rd::prove(program, request, planner.topology(), plan) == rd::Proof::Cheapest);
      },
      topology);
}

TEST_CASE("no sequence of steps is cheaper than a plan") {
  for (const Setting &setting : settings())
    for (bool gradient : {false, true})
      prove_all(setting, 1000, gradient); // of two axes all
  prove_all({"a2b2c2d2", 1, {R, P}, "16"}, 300, false);
  prove_all({"a2b2c2d2", 2, {R, P}, "32x16"}, 60, false);
  prove_all({"a2b3c4d2", 2, {R, P}, "96x48"}, 60, true);
}

// Minutes: asked for by name (tests/README.md).
TEST_CASE("no sequence of steps is cheaper than a plan, all pairs", "[.all-pairs]") {
  for (const Setting &setting : settings())
    for (bool gradient : {false, true})
      prove_all(setting, std::numeric_limits<size_t>::max(), gradient);
}

TEST_CASE("no sequence of steps takes less time than a plan") {
  rd::Topology links;
  links.in_time = true;
  links.launch = 3000;
  links.otherwise = {500, 20};
  links.axes["b"] = {2000, 90};
  for (const Setting &setting : settings())
    for (bool gradient : {false, true})
      prove_all(setting, 150, gradient, links);
  prove_all({"a2b3", 2, {R, I, P}, "12x6"}, 700, true, links);
}

TEST_CASE("plans are accepted step by step, and so are their transposes") {
  for (const Setting &setting : settings())
    for_each_pair(setting, 400, true,
                  [](ir::Program &program, rd::Planner &, rules::Rules &rules,
                     const rd::Request &request,
                     const rd::Plan &plan) { certify(program, rules, request, plan); });
}

TEST_CASE("plans keep the value, and their transposes are adjoint") {
  std::mt19937 random(1);
  for (const Setting &setting : settings())
    for_each_pair(setting, 150, true,
                  [&](ir::Program &program, rd::Planner &, rules::Rules &,
                      const rd::Request &request,
                      const rd::Plan &plan) { execute(program, request, plan, random); });
}

TEST_CASE("plans of invariant and reduced values") {
  std::mt19937 random(2);
  for (const char *mesh : {"a2b2", "a2b3"})
    for (unsigned rank = 1; rank <= 2; ++rank)
      for_each_pair({mesh, rank, {R, I, P}, "12x6"}, 700, true,
                    [&](ir::Program &program, rd::Planner &planner, rules::Rules &rules,
                        const rd::Request &request, const rd::Plan &plan) {
                      certify(program, rules, request, plan);
                      execute(program, request, plan, random);
                      REQUIRE(rd::prove(program, request, planner.topology(), plan) ==
                              rd::Proof::Cheapest);
                    });
  // What is Reduced comes back as R from two transposes.
  for_each_pair({"a2b2", 2, {R, I, Reduced}, "12x4"}, 700, true,
                [&](ir::Program &program, rd::Planner &, rules::Rules &rules,
                    const rd::Request &request, const rd::Plan &plan) {
                  REQUIRE(rd::verify(program, rules, request, plan) == "");
                  execute(program, request, plan, random);
                });
}

TEST_CASE("plans of uneven blocks") {
  std::mt19937 random(3);
  for (auto [mesh, shape] : {std::pair{"a2b2", "5x3"},
                             {"a2b3", "7x5"},
                             {"a4b2", "9x3"},
                             {"a2b2", "1x3"},
                             {"a2b2c2", "5x3"}})
    for (unsigned rank = 1; rank <= 2; ++rank)
      for_each_pair({mesh, rank, {R, P}, shape}, 250, false,
                    [&](ir::Program &program, rd::Planner &planner, rules::Rules &rules,
                        const rd::Request &request, const rd::Plan &plan) {
                      REQUIRE(plan.bound.value_or(0) <= plan.bytes);
                      REQUIRE(plan.bytes <= plan.padded_bytes);
                      REQUIRE(rd::verify(program, rules, request, plan) == "");
                      execute(program, request, plan, random);
                      REQUIRE(rd::prove(program, request, planner.topology(), plan) ==
                              rd::Proof::Cheapest);
                    });
}

TEST_CASE("the same request gives the same plan whatever was planned before") {
  Setting setting{"a2b2c2", 2, {R, P}, "8x16"};
  std::vector<std::string> first;
  auto record = [&](ir::Program &program, rd::Planner &, rules::Rules &, const rd::Request &,
                    const rd::Plan &plan) { first.push_back(steps_of(program, plan, 2)); };
  for_each_pair(setting, 300, true, record);
  std::vector<std::string> forwards = std::move(first);
  // The other way round, in a program of its own.
  ir::Program program = program_on(setting.mesh);
  std::vector<ir::TypeId> types = all_types(program, setting.rank, setting.kinds);
  ir::ShapeId shape = read_shape(program, shape_of(setting));
  size_t pairs = types.size() * types.size(), step = (pairs / 300 + 1) | 1;
  rd::Planner planner(program);
  for (size_t n = forwards.size(); n-- > 0;) {
    size_t i = n * step;
    rd::Request request{types[i / types.size()], types[i % types.size()], shape};
    CHECK(steps_of(program, planner.plan(request), 2) == forwards[n]);
  }
}

TEST_CASE("other planners are never cheaper under the same cap") {
  for (const Setting &setting : settings())
    for_each_pair(setting, 600, false,
                  [](ir::Program &program, rd::Planner &planner, rules::Rules &,
                     const rd::Request &request, const rd::Plan &plan) {
                    rd::Problem problem =
                        rd::to_numeric_problem(program, request, planner.topology()).problem;
                    auto beats = [&](const std::optional<Opponent> &other) {
                      if (!other)
                        return;
                      rd::Request loose = request;
                      loose.cap = rd::kNoCap;
                      const rd::Plan &ours = other->peak <= plan.cap ? plan : planner.plan(loose);
                      REQUIRE(ours.bytes <= other->bytes);
                      if (ours.bytes == other->bytes)
                        REQUIRE(ours.collectives <= other->collectives);
                    };
                    beats(greedy(problem));
                    beats(normal_form(problem));
                  });
}

} // namespace spmd::property
