// A scan is its rounds, one after the other: what it accepts, and the types of what it carries and
// stacks, are those of the program that takes entries, calls the body and stacks by itself.
#include "checker/check.h"
#include "checker/report/report.h"
#include "ir/dialect/print_type.h"
#include "ir/input/input.h"
#include "ir/text/text.h"
#include "tests/unit/catch.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/core.h>

#include <string>

namespace spmd::property {
namespace {

// Of what the body takes: extents and kinds; `@` before a dimension that a scanned operand has in
// front.
constexpr const char *kTypes[] = {
    "f32[@4, 4] R",          "f32[@4, 4] I@a R@b",         "f32[@4, 4] P@a R@b", "f32[@4@a, 4] R@b",
    "f32[@4, 4@a] R@b",      "f32[@4@(a,b), 4]",           "f32[@4@(b,a), 4]",   "f32[@4@b, 4@a]",
    "f32[@4, 4] P@a S(1)@b", "f32[@4@a, 4] of [@7, 4] R@b"};
// Extents that a cut in front would have.
constexpr const char *kCutInFront = "f32[3@a, 4, 4] R@b";

constexpr const char *kOps[] = {
    "neg %x",
    "add %h, %x",
    "mul %h, %x",
    "mul %x, %w",
    "matmul %h, %x",
    "matmul %x, %w { partial = a }",
    "matmul %w, %x",
    "softmax %x { dim = 0 }",
    "softmax %x { dim = 1 }",
    "cumsum %x { dim = 0 }",
    "sum %x { dim = [0], keepdim = true }",
    "sum %x { dim = [0], keepdim = true, partial = a }",
    "transpose %x { dim0 = 0, dim1 = 1 }",
    "transpose %h { dim0 = 0, dim1 = 1 }",
    "all_reduce %x { axis = a, src = P, dst = R }",
    "all_gather %x { axis = a, src = S(0), dst = R }",
    "all_gather %x { axis = a, src = S(1), dst = R }",
    "reduce_scatter %x { axis = a, src = P, dst = S(1) }",
    "all_to_all %x { axis = a, src = S(0), dst = S(1) }",
};

std::string with_front(llvm::StringRef type, const char *front) {
  std::string text = type.str();
  // The marks of dimensions in front; those of axes follow a digit.
  for (size_t at = 0; (at = text.find("[@", at)) != std::string::npos;)
    text.replace(at, 2, std::string("[") + front);
  return text;
}

struct Checked {
  ir::Program program;
  checker::CheckResult result;
  bool refused = false;
  std::string why;

  explicit Checked(const std::string &text) {
    ir::ReadResult read = ir::read_program(text);
    for (const ir::InputError &error : read.errors)
      UNSCOPED_INFO(error.name << " " << error.line << " " << error.message);
    REQUIRE(read.errors.empty());
    program = std::move(read.program);
    result = checker::check(program);
    for (const checker::Finding &finding : result.findings)
      if (finding.info().severity == rules::Severity::Error) {
        refused = true;
        why += std::string(finding.info().name) + ": " + message_of(program, finding) + "\n";
      }
  }
  // Kinds, cuts, local extents and blocks.
  std::string type(llvm::StringRef name) const {
    for (uint32_t i = 0; i < program.values.size(); ++i) {
      ir::ValueId id{i};
      if (ir::print_value(program, id) != name || !result.types[i].valid())
        continue;
      std::string blocks;
      if (result.sizes[i].valid())
        for (const ir::UnevenDim &dim : program.shard_sizes[result.sizes[i]].dims)
          blocks += fmt::format(" {} of {}", dim.dim,
                                ir::print(dim.global, program.exprs, program.strings));
      return ir::print_type(program, program.types[result.types[i]], result.shapes[i]) + blocks;
    }
    return "";
  }
};

} // namespace

TEST_CASE("a scan is its rounds") {
  unsigned accepted = 0, refused = 0;
  auto compare = [&](const std::string &op, const char *w, const char *h, const std::string &x) {
    for (const char *next : {"%y", "%h"}) {
      std::string head =
          fmt::format("mesh m {{ a = 2, b = 2 }}\nfunc @f(%w, %h, %x) {{\n  %y = {}\n  return {}, "
                      "%y\n}}\n%w0 = input {}\n%h0 = input {}\n%xs = input {}\n",
                      op, next, with_front(w, ""), with_front(h, ""), x);
      std::string scan =
          head + "%c, %s = scan %w0, %h0, %xs { consts = 1, carry = 1, body = @f }\n";
      std::string rounds = head;
      std::string carry = "%h0";
      for (int i = 0; i < 3; ++i) {
        rounds += fmt::format("%x{0} = select %xs {{ dim = 0, index = {0} }}\n"
                              "%c{0}, %y{0} = call %w0, {1}, %x{0} {{ body = @f }}\n",
                              i, carry);
        carry = fmt::format("%c{}", i);
      }
      rounds += "%s = stack [%y0, %y1, %y2] { dim = 0 }\n";
      INFO(scan << "\n" << rounds);
      Checked whole(scan), each(rounds);
      INFO("the scan: " << whole.why << "its rounds: " << each.why
                        << "the carry: " << each.type("%c0"));
      // A carry keeps its type, which no call asks for.
      bool keeps = each.type("%c0") == each.type("%h0");
      CHECK(whole.refused == (each.refused || !keeps));
      ++(whole.refused ? refused : accepted);
      if (whole.refused || each.refused)
        continue;
      CHECK(whole.type("%c") == each.type("%c2"));
      CHECK(whole.type("%s") == each.type("%s"));
    }
  };
  for (const char *op : kOps)
    for (const char *h : kTypes) {
      bool reads_w = llvm::StringRef(op).contains("%w");
      for (const char *w : kTypes)
        for (const char *x : kTypes)
          if (reads_w || w == kTypes[0])
            compare(op, w, h, with_front(x, "3, "));
      compare(op, kTypes[0], h, kCutInFront);
    }
  CHECK(accepted > 900);
  CHECK(refused > 1000);
}

} // namespace spmd::property
