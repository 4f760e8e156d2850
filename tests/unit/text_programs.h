// Programs in the text form and what the tests of it share.
#pragma once

#include "ir/input/input.h"

#include "tests/unit/catch.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace spmd::ir::text {

inline constexpr const char *kCases = "tests/cases";

// The example of ir/README.md.
inline constexpr std::string_view kExample = R"(trace { phase = forward, world = 16 }
mesh pipe { pp = 2, dp = 2, tp = 4 }
mesh stage within pipe { pp = 1 } { dp, tp }           // sub-mesh: ranks 8..15
mesh s { ep = 16 }                                     // all ranks as one axis
mesh m { dp = 4:4, tp = 4:1, all = (dp, tp) }          // size:stride; `all` is flattened; current mesh
group "5" = m.tp
symbol s0 { min = 4, max = 4096, multiple_of = 4 }
rule mylib.swiglu = "f(g[...]) * u[...] -> [...]"
suppress unstated-partial { scope = "layers.*.aux", reason = "logged only", until = "2030-01-31" }
%x = input f32[8, 16@tp] R@dp                          // sharded on tp, replicated on dp
%y = input bf16[64@(dp,tp), 128]                       // two axes on one dimension, dp outer
%u = input f32[8] V                                    // varying on every axis, no spec: local code only
%n = buffer f32[16] Reduced@tp I@dp                    // R, gradient owned; invariant
%k = buffer f32[16] R|I@dp ?@tp                        // undecided; unknown
%z = input f32[s0, 62] of [s0, 248] S(1)@tp P@dp       // symbol, global extents, partial
%w = param f32[16@tp, 64] R@dp "mlp.w2" { grad = P@dp S(0)@tp scale dp, sync = { dp = avg }, step = R@dp S(0)@tp }
%h = matmul %x, %w { partial = tp }                    // type: P@tp
%r = all_reduce %h { axis = tp, src = P, dst = R } at "model.py":41:13 in "layers.0.mlp"
%a = all_gather %x { axis = tp, src = S(1), dst = R }
%s = reduce_scatter %h { axis = tp, op = avg, src = P, dst = S(0) }
%t = all_to_all %x { axis = tp, src = S(1), dst = S(0) }
%v = redistribute %y { to = bf16[64@(tp,dp), 128] }    // whole type: the plan is the checker's
%e = reinterpret_mesh %y { mesh = s }                  // type: S(0)@ep
%p = softmax %h { dim = [1] }                          // error: [partial-into-nonlinear] tp
%d = scale %h { by = 1/(dp*tp) }                       // type: R@dp P@tp scale 1/(dp*tp)
assert_type %r { type = R@tp R@dp }
%o: f32[8, 16] R@dp S(1)@tp = local_map over tp (%q = %x S(1)@tp) {
  %l = gelu %q
  yield %l
}
func @mlp(%i: f32[8, 16@tp] R@dp, %j: f32[16@tp, 64] R@dp) {
  %0 = matmul %i, %j { partial = tp }
  return %0
}
%f = call %x, %w { body = @mlp }
func @norm(%i: f32[4@tp, 16] R@dp grad S(0)@tp P@dp, %j: f32[16] R grad P) -> f32[4@tp, 16] R@dp     // opaque
with { grad = false } {                                // `local (tp) { ... }` is short for with { local = tp }
  %w2 aliases %w = sub_ mut %w, %w { alpha = 0.5, phase = opt }
}
output loss %f: P@tp R@dp                              // error: [loss-kind] dp
output state %w2 of %w: S(0)@tp R@dp
)";

inline constexpr std::string_view kExamplePrinted = R"(trace { world = 16 }
mesh pipe { pp = 2, dp = 2, tp = 4 }
mesh stage within pipe { pp = 1 } { dp, tp }
mesh s { ep = 16 }
mesh m { dp = 4:4, tp = 4:1, all = (dp, tp) }
group "5" = m.tp
symbol s0 { min = 4, max = 4096, multiple_of = 4 }
rule mylib.swiglu = "f(g[...]) * u[...] -> [...]"
suppress unstated-partial { scope = "layers.*.aux", reason = "logged only", until = "2030-01-31" }
func @mlp(%i: f32[8, 16@tp] R@dp, %j: f32[16@tp, 64] R@dp) {
  %0 = matmul %i, %j { partial = tp }
  return %0
}
func @norm(%i: f32[4@tp, 16] R@dp grad P@dp S(0)@tp, %j: f32[16] R@dp R@tp grad P@dp P@tp) -> f32[4@tp, 16] R@dp
%x = input f32[8, 16@tp] R@dp
%y = input bf16[64@(dp, tp), 128]
%u = input f32[8] V@dp V@tp
%n = buffer f32[16] I@dp Reduced@tp
%k = buffer f32[16] R|I@dp ?@tp
%z = input f32[s0, 62@tp] of [s0, 248] P@dp
%w = param f32[16@tp, 64] R@dp "mlp.w2" { grad = P@dp S(0)@tp scale dp, sync = { dp = avg }, step = R@dp S(0)@tp }
%h = matmul %x, %w { partial = tp }
%r = all_reduce %h { axis = tp, src = P, dst = R } at "model.py":41:13 in "layers.0.mlp"
%a = all_gather %x { axis = tp, src = S(1), dst = R }
%s = reduce_scatter %h { axis = tp, op = avg, src = P, dst = S(0) }
%t = all_to_all %x { axis = tp, src = S(1), dst = S(0) }
%v = redistribute %y { to = bf16[64@(tp, dp), 128] }
%e = reinterpret_mesh %y { mesh = s }
%p = softmax %h { dim = [1] }
%d = scale %h { by = 1/(dp*tp) }
assert_type %r { type = R@dp R@tp }
%o: f32[8, 16@tp] R@dp = local_map over tp (%q = %x S(1)@tp) {
  %l = gelu %q
  yield %l
}
%f = call %x, %w { body = @mlp }
with { grad = false } {
  %w2 aliases %w = sub_ mut %w, %w { alpha = 0.5, phase = opt }
}
output loss %f: R@dp P@tp
output state %w2 of %w: R@dp S(0)@tp
)";

// After `mesh m { dp = 2, tp = 4 }`; one program a row.
inline constexpr std::string_view kCanonical[] = {
    "",
    "%x = input f32[8, 16] R@dp R@tp\n",
    "%x = input ?[...]\n%y = input ?[8]\n%z = input f32[...] of [8] R@dp\n",
    "%x = param f32[8] R@dp \"a \\\"b\\\" \\\\ \\n \\u0001 \xC3\xA9\" at \"f.py\":3 in \"scope\"\n",
    "%x = param f32[8] { grad = null }\n%y = param f32[8] { sync = dp }\n",
    "%x = param f32[8] { sync = { (dp, tp) = avg, dp = sum }, step = null, requires_grad = true "
    "}\n",
    "%x = param f32[8] { hints = { (dp, tp) = \"a \\\"flag\\\"\", dp = \"\" } }\n",
    "%x grad_of %y = input f32[8]\n%y = gelu %x\n",
    "%x = token ?[...]\n%y = const i64[] { requires_grad = false }\n",
    "%x = rng R@dp V@tp\n%y = rng { seed = 3 }\n",
    "nop\n%a = f\n%b, %c aliases %a = pair %a\n",
    "%x = f 1, -2, 0.5, -1e-05, 1e+20, 2.0, inf, -inf, nan, true, false, null, \"s\", [1, [2, "
    "3.5]], []\n",
    "%x = f { a = 1, b = -2.5, c = \"s\", d = [1, \"t\", null], e = { f = true, g = {} } }\n",
    "%x = f { R = 4, \"ignore\" = 2, \"odd key\" = 3, \"phase\" = 1, to = 5 }\n",
    "%x = \"a.1\"\n%y = \"input\" %x\n%z = \"aten::add\" %x\n%w = aten.add.Tensor %z\n",
    "%\"a//b\" = f\n%a/b-c.d = g %\"a//b\"\n%007 = f\n%7 = g\n",
    "%x = f\n%y = g %x, mut %x { other = %x, pair = [%x, [1, %x], 3] }\n",
    "%x = f\n%y = g %x { bwd_of = %x, phase = bwd, ignore = [a-b, c] }\n",
    "%x = f { axis = (dp, tp), src = [P, V], dst = [R, S(-1)], partial = m.tp, by = 2*dp/tp, vjp = "
    "none }\n",
    "%x = f { grad = P@dp scale dp, in_types = [null, R@dp], out_types = [S(0)@(tp, dp)], dtype = "
    "bf16 }\n",
    "%x = f { type = null, to = \"bf16\" }\n",
    "%x: R@dp, %y: f32[8@tp] P(max)@dp, %z requires_grad = f\n%w no_grad = g\n",
    "%x: P(min)@dp P(prod)@tp = f\n%y: P(and)@dp P(or)@tp = f\n%z: P(xor)@dp = f\n",
    "%x = f at \"a.py\":1 fn \"g\" from \"b.py\":2:3 from \"c.py\":4:5-6:7 fn \"h\" in \"s\"\n",
    "%x = f expect error some-finding expect warning other (dp, tp) expect %x: R@dp\n",
    "with { check = false, grad = false, implicit = true } {\n  %x = f\n}\nlocal (dp, tp) {\n  %y "
    "= f\n}\n",
    "func @f(%x: f32[8] R@dp grad null, %y) { local = tp, grad = false } {\n"
    "  %z = g %x\n  with { global = tp, grad = true } {\n    %w = g %z\n  }\n  return %w, 1\n}\n"
    "func @g() {} -> ()\n",
    "func @f() {\n  return\n}\n",
    "func @f() {\n  call { body = @g }\n  return\n}\nfunc @g() {\n  return\n}\n",
};

// Whole programs.
inline constexpr std::string_view kTables[] = {
    "trace { dialect = \"@d\" }\nmesh m { a = 2 }\nsymbol \"@s\"\n",
    "mesh m { a = 2 }\n",
    "trace { version = \"1.3\", producer = { name = \"p\", frontend = \"fx\" }, dialect = jax, "
    "mode = local, "
    "phase = step, missing = [types, shapes], world = 8, rank = 3, op_count = 0, x_foo = "
    "\"{\\\"a\\\":1}\" }\n"
    "mesh m { a = 2 }\n",
    "file \"a.py\" { sha256 = \"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\" "
    "}\n"
    "mesh m { a = 2 }\n",
    "mesh m { a = 2 local \"data\", b = 3:1 global, c = 1, ab = (b, a) }\n",
    "mesh m { a = 2:4, b = 2:2, c = 2:1, bc = [4:1] } offset 8\n",
    "mesh p { a = 2, b = 4 }\nmesh q within p { a = 1 } { b }\nmesh p\n%x = input f32[8] R@b on "
    "q\n",
    "mesh m { a = 2 }\ngroup \"k\" = [0, 3, 1]\ngroup \"l\" = [2:1, 2:4] offset 1\ngroup \"n\" = "
    "m.a\n",
    "mesh m { a = 2 }\nsymbol s\nsymbol t { min = 0, max = 9, multiple_of = 3, hint = 6 }\n"
    "%x = input f32[s, ((s * 2) / t)] scale 1/t\n%y = f sym(s % 4) { n = sym(s + t) }\n",
    "mesh m { a = 2 }\nrule f.g = \"x[...] -> [...]\"\nrule \"odd op\" like gelu\n",
    "mesh m { a = 2 }\nsuppress f-g { scope = \"a.*\", reason = \"r\" } at \"f.py\":3\n"
    "suppress \"a-1\" { reason = \"r\" }\n",
    "mesh m { a = 2 }\n%x = input f32[8]\noutput %x: R@a \"name\"\noutput grad %x of %x\n",
};

inline std::string describe(const std::vector<InputError> &errors) {
  std::string out;
  for (const InputError &error : errors)
    out += std::to_string(error.line) + ":" + std::to_string(error.col) + ": " +
           std::string(error.name) + ": " + error.message + "\n";
  return out;
}

inline ReadResult read(std::string_view text) { return read_text({text.data(), text.size()}); }

// Reads, verifies and prints; empty, and the test fails, if there is an error.
inline std::string reprint(std::string_view text) {
  ReadResult result = read(text);
  CHECK(describe(result.errors) == "");
  if (!result.errors.empty())
    return "";
  CHECK(describe(verify(result.program)) == "");
  return print_text(result.program);
}

inline std::string with_mesh(std::string_view body) {
  return "mesh m { dp = 2, tp = 4 }\n" + std::string(body);
}

inline std::vector<std::filesystem::path> case_files() {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::exists(kCases))
    for (const auto &entry : std::filesystem::recursive_directory_iterator(kCases))
      if (entry.path().extension() == ".spmd")
        files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

inline std::string contents(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

} // namespace spmd::ir::text
