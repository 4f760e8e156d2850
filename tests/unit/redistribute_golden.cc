// Plans of known steps, bytes and bounds: one row each. Bytes are of the busiest rank, f32.
#include "rules/redistribute/plan.h"
#include "rules/redistribute/prove.h"
#include "rules/redistribute/transpose.h"
#include "rules/redistribute/verify.h"
#include "tests/unit/catch.h"
#include "tests/unit/redistribute_sample.h"

namespace spmd::redistribute_test {
namespace {

constexpr int64_t kNone = -1; // no closed form: the general bound holds

struct Row {
  int number;
  const char *mesh, *shape, *from, *to, *steps;
  uint64_t bytes;
  int collectives;
  int64_t bound;
};

// clang-format off
constexpr Row kRows[] = {
    {1, "a2", "16x8", "[a, -]", "[-, -]", "gather a:0", 256, 1, 256},
    {2, "a2", "16x8", "[a, -]", "[-, a]", "a2a a 0>1", 128, 1, 128},
    {3, "a2", "16x8", "[-, -] Pa", "[-, -]", "reduce a", 512, 1, 512},
    {4, "a2", "16x8", "[-, -] Pa", "[a, -]", "scatter a:0", 256, 1, 256},
    {5, "a2", "16x8", "[-, -]", "[-, -] Pa", "keep-one a", 0, 0, kNone},
    {6, "a2", "16x8", "[a, -]", "[-, -] Pa", "zero-fill a:0", 0, 0, kNone},
    {7, "a2b2", "16x8", "[ab, -]", "[ba, -]", "reorder [ba, -]", 128, 1, 128},
    {8, "a2b2", "16", "[ab]", "[ba]", "reorder [ba]", 16, 1, 16},
    {9, "a2b2", "16x8", "[a, b]", "[b, a]", "reorder [b, a]", 128, 1, 128},
    {10, "a2b2", "16x8", "[a, -]", "[b, -]", "reorder [b, -]", 256, 1, 256},
    {11, "a2b2", "16x8", "[ab, -]", "[b, -]", "reorder [ba, -]; gather a:0", 256, 2, 256},
    {12, "a2b2", "16x8", "[ab, -]", "[-, -]", "gather ab:0", 384, 1, 384},
    {13, "a2b2", "16x8", "[a, -]", "[-, b]", "slice b:1; gather a:0", 128, 1, 128},
    {14, "a2b2", "16x8", "[a, -]", "[-, ab]", "slice b:0; a2a ab 0>1", 96, 1, 64},
    {15, "a2b2", "16x8", "[a, -]", "[ba, -]", "slice b:0; reorder [ba, -]", 128, 1, 128},
    {16, "a2b2", "16x8", "[b, -]", "[ab, -]", "slice a:0; reorder [ab, -]", 128, 1, 128},
    {17, "a2b2", "16x8", "[ab, -]", "[-, ab]", "a2a ab 0>1", 96, 1, 96},
    {18, "a2b2", "16x8", "[ab, -]", "[-, ba]", "a2a b 0>1; a2a a 0>1", 128, 2, 96},
    {19, "a2b2", "16x8", "[ab, -]", "[a, b]", "a2a b 0>1", 64, 1, 64},
    {20, "a2b2", "16x8", "[ab, -]", "[b, a]", "a2a ab 0>1; a2a b 1>0", 160, 2, 128},
    {21, "a2b2", "16x8", "[-, -] Pab", "[-, -]", "reduce ab", 768, 1, 768},
    {22, "a2b2", "16x8", "[-, -] Pab", "[ab, -]", "scatter a:0 b:0", 384, 1, 384},
    {23, "a2b2", "16x8", "[-, -] Pab", "[a, b]", "scatter a:0 b:1", 384, 1, 384},
    {24, "a2b2", "16x8", "[-, -] Pab", "[a, -]", "scatter a:0 b:0; gather b:0", 512, 2, kNone},
    {25, "a2b2", "16x8", "[b, -] Pa", "[a, -]", "a2a b 0>1; scatter a:0; gather b:1", 384, 3, kNone},
    {26, "a2b2", "16x8", "[a, -] Pb", "[b, -]", "a2a a 0>1; scatter b:0; gather a:1", 384, 3, kNone},
    {27, "a2b2", "16x8", "[a, -] Pb", "[ba, -]", "scatter b:0; reorder [ba, -]", 256, 2, kNone},
    {28, "a2b2", "16x8", "[-, -] Pa", "[ab, -]", "slice b:1; scatter a:0; a2a b 1>0", 192, 2, kNone},
    {29, "a2b2", "16x8", "[-, -] Pa", "[ba, -]", "slice b:0; scatter a:0", 128, 1, kNone},
    {30, "a4b2", "16x8", "[-, -] Pa", "[-, -]", "slice b:0; reduce a; gather b:0", 640, 2, 640},
    {31, "a4b2", "16x8", "[ab, -]", "[b, a]", "a2a ab 0>1; a2a b 1>0", 88, 2, 64},
    {32, "a2b3", "12x12", "[a, -]", "[b, -]", "slice b:0; reorder [ba, -]; gather a:0", 192, 2, 192},
    {33, "a2b3", "12x12", "[a, b]", "[b, a]", "a2a a 0>1; a2a ba 1>0; a2a a 0>1", 176, 3, 96},
    {34, "a2b2c2", "16x8", "[abc, -]", "[c, -]", "reorder [cab, -]; gather ab:0", 256, 2, 256},
    {35, "a2b2c2", "16x8x8", "[a, bc, -]", "[-, -, abc]", "a2a a 0>2; a2a bc 1>2", 640, 2, 448},
    {36, "a2b2c2", "16x8x8", "[b, ac, -]", "[-, -, abc]", "a2a c 1>0; a2a a 1>2; a2a bc 0>2", 896, 3, 448},
    {37, "a2b2c2", "16x8", "[ab, -]", "[c, -]", "reorder [ca, -]; gather a:0", 256, 2, 256},
    {38, "a2b2c2", "16x8", "[-, a]", "[ab, c]", "slice b:0 c:0; reorder [ab, c]", 64, 1, 64},
    {39, "a2b2c2", "16x8", "[b, -]", "[-, abc]", "slice a:1 c:0; a2a bc 0>1", 48, 1, 32},
    {40, "a2b2c2", "8", "[abc]", "[cba]", "reorder [cba]", 4, 1, 4},
    {41, "a2b2c2", "16x8x8", "[-, a, -]", "[-, -, abc]", "slice b:1 c:1; a2a abc 1>2", 448, 1, 256},
    {42, "a2b2c2", "16x8", "[c, -] Pab", "[-, c]", "scatter a:0 b:0; a2a cab 0>1; gather ab:1", 440, 3, kNone},
    {43, "a2b2c2d2", "16x8x8", "[c, a, -]", "[d, -, ab]", "slice b:2 d:2; reorder [d, c, ab]; gather c:1", 512, 2, 512},
    {44, "a2b2c2", "16x8", "[a, -] Pb", "[b, a]", "slice c:0; scatter b:1; reorder [bc, a]; gather c:0", 192, 3, kNone},
    // Elements that are fewer than ranks: a ring of pieces of them.
    {45, "a4", "1", "[-] Pa", "[-]", "reduce a", 6, 1, 6},
    {46, "a4", "3", "[-] Pa", "[-]", "reduce a", 18, 1, 18},
    {47, "a3b4", "1", "[-] Pab", "[-]", "reduce ab", 8, 1, 8},
};
// clang-format on

struct Uneven {
  const char *mesh, *shape, *from, *to, *steps;
  uint64_t bytes, padded;
  bool within_cap = true;
};

constexpr Uneven kUneven[] = {
    {"a4", "10", "[a]", "[-]", "gather a:0", 36, 36},
    {"a4", "5", "[a]", "[-]", "gather a:0", 20, 24},
    {"a4", "5x8", "[a, -]", "[-, a]", "a2a a 0>1", 40, 48},
    {"a4", "5", "[-] Pa", "[a]", "scatter a:0", 24, 24},
    {"a2b2", "5", "[ab]", "[-]", "gather ab:0", 16, 24},
    {"a4b2", "9", "[ba]", "[ab]", "gather ba:0; slice a:0 b:0", 36, 56, false},
    {"a3", "2", "[-]", "[a]", "slice a:0", 0, 0},
};

// With gradients: the price is forward and backward. `launch`: in bytes, per collective.
struct Kinds {
  const char *mesh, *from, *to, *steps;
  uint64_t forward, backward, launch = 0;
};

constexpr Kinds kKinds[] = {
    {"a4b2", "[-, -] Pa", "[-, -]", "slice b:0; reduce a; gather b:0", 640, 640},
    {"a4b2", "[-, -] Pa Ib", "[-, -] Iab", "reduce a", 768, 0},
    {"a2b2", "[ab, -]", "[-, -] Iab", "gather ab:0", 384, 0},
    {"a2b2", "[-, -] Iab", "[ab, -]", "slice a:0 b:0", 0, 384},
    {"a2b2", "[b, -] Ia", "[ab, -]", "slice a:0; reorder [ab, -]", 128, 256},
    {"a2b2", "[a, -]", "[b, -] Ia", "slice b:0; reorder [ba, -]; gather a:0", 256, 128},
    {"a2b2", "[b, -] Pa", "[a, -]", "reduce a; reorder [a, -]", 512, 512, 256},
    {"a2b2c2", "[a, -] Pb", "[b, a]", "a2a a 0>1; scatter b:0", 256, 256, 100},
};

void check_certified(ir::Program &program, const rd::Request &request, const rd::Plan &plan) {
  rules::Rules rules(program);
  CHECK(rd::verify(program, rules, request, plan) == "");
  rd::Request back = rd::transpose(program, request);
  rd::Plan dual = rd::transpose(program, plan);
  CHECK(rd::verify(program, rules, back, dual) == "");
  CHECK(dual.bytes == plan.backward_bytes);
  rd::Plan again = rd::transpose(program, dual), wanted = plan;
  for (rd::Step &step : wanted.steps)
    step.padded_bytes = step.bytes; // one price is kept per direction
  CHECK(again.steps == wanted.steps);
}

} // namespace

TEST_CASE("plans of golden cases") {
  for (const Row &row : kRows) {
    INFO(row.number << ": " << row.from << " -> " << row.to << " on " << row.mesh);
    ir::Program program = program_on(row.mesh);
    rd::Planner planner(program);
    rd::Request request{read_type(program, row.from), read_type(program, row.to),
                        read_shape(program, row.shape), rd::kOwnCap, false};
    const rd::Plan &plan = planner.plan(request);
    unsigned rank = static_cast<unsigned>(program.shapes[request.shape].dims.size());
    CHECK(steps_of(program, plan, rank) == row.steps);
    CHECK(plan.bytes == row.bytes);
    CHECK(plan.collectives == row.collectives);
    CHECK(plan.proven);
    CHECK(plan.within_cap);
    CHECK(plan.bound.value_or(0) <= plan.bytes);
    if (row.bound != kNone)
      CHECK(plan.bound == static_cast<uint64_t>(row.bound));
    check_certified(program, request, plan);
  }
}

TEST_CASE("plans of uneven blocks") {
  for (const Uneven &row : kUneven) {
    INFO(row.from << " -> " << row.to << " on " << row.mesh << ", " << row.shape);
    ir::Program program = program_on(row.mesh);
    rd::Planner planner(program);
    rd::Request request{read_type(program, row.from), read_type(program, row.to),
                        read_shape(program, row.shape), rd::kOwnCap, false};
    const rd::Plan &plan = planner.plan(request);
    unsigned rank = static_cast<unsigned>(program.shapes[request.shape].dims.size());
    CHECK(steps_of(program, plan, rank) == row.steps);
    CHECK(plan.bytes == row.bytes);
    CHECK(plan.padded_bytes == row.padded);
    CHECK(plan.within_cap == row.within_cap);
    check_certified(program, request, plan);
  }
}

TEST_CASE("plans by the price of both directions") {
  for (const Kinds &row : kKinds) {
    INFO(row.from << " -> " << row.to << " on " << row.mesh);
    ir::Program program = program_on(row.mesh);
    rd::Topology topology;
    topology.launch = row.launch;
    rd::Planner planner(program, topology);
    rd::Request request{read_type(program, row.from), read_type(program, row.to),
                        read_shape(program, "16x8")};
    const rd::Plan &plan = planner.plan(request);
    CHECK(steps_of(program, plan, 2) == row.steps);
    CHECK(plan.bytes == row.forward);
    CHECK(plan.backward_bytes == row.backward);
    check_certified(program, request, plan);
  }
}

// Each row is planned at a price per collective at which another sequence is the cheapest.
TEST_CASE("a plan that is not the cheapest is not proved") {
  for (const Kinds &row : kKinds) {
    if (!row.launch)
      continue;
    ir::Program program = program_on(row.mesh);
    rd::Topology wrong, right;
    wrong.launch = row.launch;
    rd::Request request{read_type(program, row.from), read_type(program, row.to),
                        read_shape(program, "16x8")};
    rd::Planner misled(program, wrong), planner(program, right);
    CHECK(rd::prove(program, request, wrong, misled.plan(request)) == rd::Proof::Cheapest);
    CHECK(rd::prove(program, request, right, misled.plan(request)) == rd::Proof::NotCheapest);
    rd::Plan plan = planner.plan(request);
    CHECK(rd::prove(program, request, right, plan) == rd::Proof::Cheapest);
    ++plan.steps.front().bytes; // and one of which a price is wrong
    CHECK(rd::prove(program, request, right, plan) == rd::Proof::NotCheapest);
  }
}

TEST_CASE("what is an integer has no backward") {
  ir::Program program = program_on("a4");
  rd::Planner planner(program);
  ir::Type source = program.types[read_type(program, "[a]")],
           target = program.types[read_type(program, "[-]")];
  source.set_gradient_free(true);
  target.set_gradient_free(true);
  const rd::Plan &plan = planner.plan(
      {program.types.add(source), program.types.add(target), read_shape(program, "8")});
  CHECK(plan.bytes == 24);
  CHECK(plan.backward_bytes == 0);
  CHECK(plan.steps.front().backward_hops == 0);
}

} // namespace spmd::redistribute_test
