// Programs that leave redistribution implicit, and what is written for it.
#include "checker/rewrite/elaborate.h"

#include "ir/input/input.h"

#include "tests/unit/catch.h"
#include <fmt/format.h>

#include <random>

namespace spmd::checker {
namespace {

ir::Program read(const std::string &text) {
  ir::ReadResult read = ir::read_text(text);
  INFO(text);
  REQUIRE(read.errors.empty());
  return std::move(read.program);
}

constexpr std::string_view kMesh = "mesh m { dp = 2, tp = 4 }\n";

// The statements of the region, after declarations; the lines that stand there afterwards.
struct Sample {
  std::string declared, region, after;
  uint64_t forward, backward;
};

const Sample kSamples[] = {
    // What is pending is reduced where a function takes it; the sum is stated.
    {"%x = param f32[8, 16@tp] I@dp\n", "  %n = sum %x\n  %y = sqrt %n\n",
     "  %n = sum %x { partial = tp }\n"
     "  %n_1 = redistribute %n { axis = tp, src = P, dst = R }\n"
     "  %y = sqrt %n_1\n",
     6, 6},
    // I where a use says so: nothing is sent backward.
    {"%v = param f32[16@tp] I@dp\n%i = param f32[64] I\n",
     "  %p = softmax %v { dim = 0 }\n  %q = mul %p, %i\n",
     "  %v_1 = redistribute %v { axis = tp, src = S(0), dst = I }\n"
     "  %p = softmax %v_1 { dim = 0 }\n  %q = mul %p, %i\n",
     192, 0},
    // A cut is free; what it hides is the gradient that is P.
    {"%x = input f32[8, 16@tp] R@dp\n%u = param f32[64, 64] R { sync = (dp, tp) }\n",
     "  %y = matmul %x, %u\n",
     "  %u_1 = redistribute %u { axis = tp, src = R, dst = S(0) }\n"
     "  %y = matmul %x, %u_1 { partial = tp }\n",
     0, 0},
    // The earlier operand stays.
    {"%x = param f32[8, 16@tp] I@dp\n%s = param f32[2@tp, 64] I@dp\n", "  %z = add %x, %s\n",
     "  %s_1 = redistribute %s { axis = tp, src = S(0), dst = S(1) }\n  %z = add %x, %s_1\n", 384,
     384},
    // Two uses, one move; where the other operand is longer, the shorter one moves.
    {"%x = param f32[3, 8, 16@tp] I@dp\n%s = param f32[2@tp, 64] I@dp\n",
     "  %b = mul %s, %x\n  %c = div %s, %x\n",
     "  %s_1 = redistribute %s { axis = tp, src = S(0), dst = S(1) }\n"
     "  %b = mul %s_1, %x\n  %c = div %s_1, %x\n",
     384, 384},
    // A bias is added once.
    {"%x = param f32[8, 16@tp] I@dp\n%w = param f32[16@tp, 64] I@dp\n%b = param f32[64] I@dp R@tp "
     "{ sync "
     "= tp }\n",
     "  %h = matmul %x, %w\n  %o = add %h, %b\n",
     "  %h = matmul %x, %w { partial = tp }\n"
     "  %b_1 = redistribute %b { axis = tp, src = R, dst = P }\n  %o = add %h, %b_1\n",
     0, 0},
    // Of an op of several terms each operand moves by its name.
    {"%x = param f32[8, 16@tp] I@dp\n%w = param f32[32, 64] I@dp R@tp { sync = tp }\n"
     "%b = param f32[32] I@dp R@tp { sync = tp }\n",
     "  %h = linear %x, %w, %b\n",
     "  %w_1 = redistribute %w { axis = tp, src = R, dst = S(1) }\n"
     "  %b_1 = redistribute %b { axis = tp, src = R, dst = P }\n"
     "  %h = linear %x, %w_1, %b_1 { partial = tp }\n",
     0, 0},
    // Both operands are one value: it moves once, in three steps that use the ranks of dp.
    {"%h = param f32[8, 64] I@dp P@tp\n", "  %q = mul %h, %h\n",
     "  %h_1 = redistribute %h { to = f32[2@tp, 64] I@dp }\n  %q = mul %h_1, %h_1\n", 1024, 1792},
    // The order of axes: no axis alone can move.
    {"%x = param f32[2@(dp,tp), 8]\n%y = param f32[2@(tp,dp), 8]\n", "  %z = add %x, %y\n",
     "  %y_1 = redistribute %y { to = f32[2@(dp, tp), 8] }\n  %z = add %x, %y_1\n", 64, 64},
    // Equal types, a list, a view: nothing to do.
    {"%x = param f32[8, 16@tp] I@dp\n%y = param f32[8, 16@tp] I@dp\n",
     "  %z = add %x, %y\n  %c = cat [%x, %y] { dim = 0 }\n  %t = transpose %x { dim0 = 0, dim1 = 1 "
     "}\n",
     "  %z = add %x, %y\n  %c = cat [%x, %y] { dim = 0 }\n  %t = transpose %x { dim0 = 0, dim1 = 1 "
     "}\n",
     0, 0},
    // Members of a list.
    {"%x = param f32[8, 16@tp] I@dp\n%y = param f32[2@tp, 64] I@dp\n",
     "  %c = cat [%x, %y] { dim = 0 }\n",
     "  %y_1 = redistribute %y { axis = tp, src = S(0), dst = S(1) }\n"
     "  %c = cat [%x, %y_1] { dim = 0 }\n",
     384, 384},
};

std::string whole(const Sample &sample, const std::string &region) {
  return fmt::format("{}{}with {{ implicit = true }} {{\n{}}}\n", kMesh, sample.declared, region);
}

} // namespace

TEST_CASE("what is written for implicit redistributions") {
  for (const Sample &sample : kSamples) {
    ir::Program program = read(whole(sample, sample.region));
    Elaboration done = elaborate(program);
    ir::Program wanted = read(whole(sample, sample.after));
    CHECK(ir::print_text(program) == ir::print_text(wanted));
    uint64_t forward = 0, backward = 0;
    for (const Insertion &each : done.insertions) {
      forward += each.forward_bytes;
      backward += each.backward_bytes;
    }
    CHECK(forward == sample.forward);
    CHECK(backward == sample.backward);
    CHECK(check(program).clean());
  }
}

TEST_CASE("outside of implicit regions nothing is written") {
  std::string text = fmt::format(
      "{}%x = param f32[8, 16@tp] I@dp\n%s = param f32[2@tp, 64] I@dp\n%z = add %x, %s\n", kMesh);
  ir::Program program = read(text);
  CHECK(elaborate(program).insertions.empty());
  CHECK_FALSE(check(program).clean());
}

namespace {

// An op with operands of these global extents, and attributes.
struct Call {
  std::string op;
  std::vector<std::vector<int>> operands;
  std::string attributes;
};
const Call kCalls[] = {
    {"add", {{16, 32}, {16, 32}}, ""},
    {"add", {{16, 32}, {32}}, ""},
    {"mul", {{16, 1}, {16, 32}}, ""},
    {"where", {{16, 32}, {16, 32}, {16, 32}}, ""},
    {"matmul", {{16, 32}, {32, 8}}, ""},
    {"linear", {{16, 32}, {8, 32}, {8}}, ""},
    {"softmax", {{16, 32}}, " { dim = 1 }"},
    {"layer_norm", {{16, 32}, {32}, {32}}, ""},
    {"relu", {{16, 32}}, ""},
    {"sum", {{16, 32}}, " { dim = [0] }"},
    {"transpose", {{16, 32}}, " { dim0 = 0, dim1 = 1 }"},
    {"cumsum", {{16, 32}}, " { dim = 0 }"},
};

// A type on the mesh, with the sharded extents divided.
std::string any_type(std::string_view dtype, const std::vector<int> &extents,
                     std::mt19937 &random) {
  std::vector<int> local = extents;
  std::vector<std::string> suffix(extents.size());
  std::string kinds;
  const std::pair<std::string, int> axes[] = {{"dp", 2}, {"tp", 4}};
  for (const auto &[axis, size] : axes) {
    unsigned choice = std::uniform_int_distribution<unsigned>(0, 5)(random);
    if (choice < extents.size() && local[choice] % size == 0) {
      local[choice] /= size;
      suffix[choice] += (suffix[choice].empty() ? "" : ",") + axis;
    } else {
      kinds += fmt::format(" {}@{}", choice == 5 ? "P" : choice == 4 ? "I" : "R", axis);
    }
  }
  std::string text;
  for (size_t i = 0; i < extents.size(); ++i)
    text += fmt::format("{}{}{}", i ? ", " : "", local[i],
                        suffix[i].empty() ? "" : fmt::format("@({})", suffix[i]));
  return fmt::format("{}[{}]{}", dtype, text, kinds);
}

} // namespace

TEST_CASE("ops whose operands are placed anyhow are brought to types that they accept") {
  std::mt19937 random(7);
  unsigned moved = 0;
  for (unsigned round = 0; round < 40; ++round)
    for (const Call &call : kCalls) {
      Sample sample{};
      std::string names;
      for (size_t i = 0; i < call.operands.size(); ++i) {
        bool condition = llvm::StringRef(call.op) == "where" && i == 0;
        sample.declared += fmt::format(
            "%x{} = input {}\n", i, any_type(condition ? "bool" : "f32", call.operands[i], random));
        names += fmt::format("{}%x{}", i ? ", " : "", i);
      }
      std::string text =
          whole(sample, fmt::format("  %y = {} {}{}\n", call.op, names, call.attributes));
      ir::Program program = read(text);
      Elaboration done = elaborate(program);
      std::string first = ir::print_text(program);
      INFO(text << "becomes\n" << first);
      moved += !done.insertions.empty();
      CHECK(check(program).clean());
      Elaboration again = elaborate(program);
      CHECK(again.insertions.empty());
      CHECK(ir::print_text(program) == first);
    }
  CHECK(moved > 200);
}

} // namespace spmd::checker
