// The text form: what reads, how it prints, that both agree, which errors stand where, and that no bytes at all
// make the reader fail in another way. Programs stand in tests/cases; here are those that no case can hold.
#include "ir/claims.h"
#include "ir/input.h"
#include "ir/lexer.h"
#include "ir/text.h"

#include "tests/unit/catch.h"

#include <filesystem>
#include <fstream>
#include <sstream>

using namespace spmd::ir;

namespace {

constexpr const char *kCases = "tests/cases";

// The example of trace-format.md, section 11.
constexpr std::string_view kExample = R"(trace { phase = forward, world = 16 }
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

constexpr std::string_view kExamplePrinted = R"(trace { world = 16 }
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

std::string describe(const std::vector<InputError> &errors) {
  std::string out;
  for (const InputError &error : errors)
    out += std::to_string(error.line) + ":" + std::to_string(error.col) + ": " + std::string(error.name) + ": " +
           error.message + "\n";
  return out;
}

ReadResult read(std::string_view text) { return read_text({text.data(), text.size()}); }

// Reads, verifies and prints; empty, and the test fails, if there is an error.
std::string reprint(std::string_view text) {
  ReadResult result = read(text);
  CHECK(describe(result.errors) == "");
  if (!result.errors.empty())
    return "";
  CHECK(describe(verify(result.program)) == "");
  return print_text(result.program);
}

std::string with_mesh(std::string_view body) {
  return "mesh m { dp = 2, tp = 4 }\n" + std::string(body);
}

std::vector<std::filesystem::path> case_files() {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::exists(kCases))
    for (const auto &entry : std::filesystem::recursive_directory_iterator(kCases))
      if (entry.path().extension() == ".spmd")
        files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::string contents(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

} // namespace

TEST_CASE("text: the example of the format reads, prints and reads again") {
  CHECK(reprint(kExample) == kExamplePrinted);
  CHECK(reprint(kExamplePrinted) == kExamplePrinted);
}

TEST_CASE("text: canonical programs print as they stand") {
  // After `mesh m { dp = 2, tp = 4 }`; one program a row.
  static constexpr std::string_view kPrograms[] = {
      "",
      "%x = input f32[8, 16] R@dp R@tp\n",
      "%x = input ?[...]\n%y = input ?[8]\n%z = input f32[...] of [8] R@dp\n",
      "%x = param f32[8] R@dp \"a \\\"b\\\" \\\\ \\n \\u0001 \xC3\xA9\" at \"f.py\":3 in \"scope\"\n",
      "%x = param f32[8] { grad = null }\n%y = param f32[8] { sync = dp }\n",
      "%x = param f32[8] { sync = { (dp, tp) = avg, dp = sum }, step = null, requires_grad = true }\n",
      "%x grad_of %y = input f32[8]\n%y = gelu %x\n",
      "%x = token ?[...]\n%y = const i64[] { requires_grad = false }\n",
      "%x = rng R@dp V@tp\n%y = rng { seed = 3 }\n",
      "nop\n%a = f\n%b, %c aliases %a = pair %a\n",
      "%x = f 1, -2, 0.5, -1e-05, 1e+20, 2.0, inf, -inf, nan, true, false, null, \"s\", [1, [2, 3.5]], []\n",
      "%x = f { a = 1, b = -2.5, c = \"s\", d = [1, \"t\", null], e = { f = true, g = {} } }\n",
      "%x = f { R = 4, \"ignore\" = 2, \"odd key\" = 3, \"phase\" = 1, to = 5 }\n",
      "%x = \"odd op\"\n%y = \"input\" %x\n%z = \"aten::add\" %x\n%w = aten.add.Tensor %z\n",
      "%\"a//b\" = f\n%a/b-c.d = g %\"a//b\"\n%007 = f\n%7 = g\n",
      "%x = f\n%y = g %x, mut %x { other = %x, pair = [%x, mut %x, 3] }\n",
      "%x = f\n%y = g %x { bwd_of = %x, phase = bwd, ignore = [a-b, c] }\n",
      "%x = f { axis = (dp, tp), src = [P, V], dst = [R, S(-1)], partial = m.tp, by = 2*dp/tp, vjp = none }\n",
      "%x = f { grad = P@dp scale dp, in_types = [null, R@dp], out_types = [S(0)@(tp, dp)], dtype = bf16 }\n",
      "%x = f { type = null, to = \"bf16\" }\n",
      "%x: R@dp, %y: f32[8@tp] P(max)@dp, %z requires_grad = f\n%w no_grad = g\n",
      "%x: P(min)@dp P(prod)@tp = f\n%y: P(and)@dp P(or)@tp = f\n%z: P(xor)@dp = f\n",
      "%x = f at \"a.py\":1 fn \"g\" from \"b.py\":2:3 from \"c.py\":4:5-6:7 fn \"h\" in \"s\"\n",
      "%x = f expect error some-finding expect warning other (dp, tp) expect %x: R@dp\n",
      "with { check = false, grad = false, implicit = true } {\n  %x = f\n}\nlocal (dp, tp) {\n  %y = f\n}\n",
      "func @f(%x: f32[8] R@dp grad null, %y) { local = tp, grad = false } {\n"
      "  %z = g %x\n  with { global = tp, grad = true } {\n    %w = g %z\n  }\n  return %w, 1\n}\n"
      "func @g() {} -> ()\n",
      "func @f() {\n  return\n}\n",
  };
  for (std::string_view row : kPrograms) {
    std::string text = with_mesh(row);
    INFO(text);
    CHECK(reprint(text) == text);
  }
}

TEST_CASE("text: tables print as they stand") {
  static constexpr std::string_view kPrograms[] = {
      "mesh m { a = 2 }\n",
      "trace { version = \"1.3\", producer = { name = \"p\", frontend = \"fx\" }, dialect = jax, mode = local, "
      "phase = step, missing = [types, shapes], world = 8, rank = 3, op_count = 2, x_foo = \"{\\\"a\\\": 1}\" }\n"
      "mesh m { a = 2 }\n",
      "file \"a.py\" { sha256 = \"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\" }\n"
      "file \"unused.py\"\nmesh m { a = 2 }\n",
      "mesh m { a = 2 local \"data\", b = 3:1 global, c = 1, ab = (b, a) }\n",
      "mesh m { a = 2:4, b = 2:2, c = 2:1, bc = [4:1] } offset 8\n",
      "mesh p { a = 2, b = 4 }\nmesh q within p { a = 1 } { b }\nmesh p\n%x = input f32[8] R@b on q\n",
      "mesh m { a = 2 }\ngroup \"k\" = [0, 3, 1]\ngroup \"l\" = [2:1, 2:4] offset 1\ngroup \"n\" = m.a\n",
      "mesh m { a = 2 }\nsymbol s\nsymbol t { min = 0, max = 9, multiple_of = 3, hint = 6 }\n"
      "%x = input f32[s, ((s * 2) / t)] scale 1/t\n%y = f sym(s % 4) { n = sym(s + t) }\n",
      "mesh m { a = 2 }\nrule f.g = \"x[...] -> [...]\"\nrule \"odd op\" like gelu\n",
      "mesh m { a = 2 }\nsuppress f-g { scope = \"a.*\", reason = \"r\" } at \"f.py\":3\n"
      "suppress \"a-1\" { reason = \"r\" }\n",
      "mesh m { a = 2 }\n%x = input f32[8]\noutput %x: R@a \"name\"\noutput grad %x of %x\n",
  };
  for (std::string_view text : kPrograms) {
    INFO(text);
    CHECK(reprint(text) == text);
  }
}

TEST_CASE("text: other spellings print canonically") {
  struct Row {
    std::string_view text, printed;
  };
  static constexpr Row kRows[] = {
      {"%x = input f32[8] R", "%x = input f32[8] R@dp R@tp\n"},
      {"%x = input f32[8] P(sum)@tp R", "%x = input f32[8] R@dp P@tp\n"},
      {"%x = input f32[8] P(avg)@tp", "%x = input f32[8] P@tp scale tp\n"},
      {"%x = input f32[8, 8] S(-1)@dp S(0)@tp", "%x = input f32[8@tp, 8@dp]\n"},
      {"%x = input f32[8] S(0)@tp S(0)@dp", "%x = input f32[8@(tp, dp)]\n"},
      {"%x = input f32[8@tp] V@tp V", "%x = input f32[8@tp] V@dp\n"},
      {"%x = input f32[8] scale 2*3*dp/(dp*4)", "%x = input f32[8] scale 3/2\n"},
      {"%x = input f32[2*3] ; ; // comment\r\n", "%x = input f32[6]\n"},
      {"%x = f { to = f32[8@tp] }", "%x = f { type = f32[8@tp] }\n"},
      {"%x = redistribute 1 { type = R@tp }", "%x = redistribute 1 { to = R@tp }\n"},
      {"%x = f { a = word, b = (c, d), e = R, g = dp.x, h = 2*3 }",
       "%x = f { a = \"word\", b = [\"c\", \"d\"], e = \"R\", g = \"dp.x\", h = 6 }\n"},
      {"%x = f [1,\n 2] { a = [\n3] }\n", "%x = f [1, 2] { a = [3] }\n"},
      {"%x = f { b = 1, a = 2, dim = 3, axis = tp }", "%x = f { axis = tp, dim = 3, a = 2, b = 1 }\n"},
      {"with { grad = false } { local tp { %x = f } }", "with { local = tp, grad = false } {\n  %x = f\n}\n"},
      {"with { local = tp } { %x = f }", "local tp {\n  %x = f\n}\n"},
      {"%x = input f32[8] { sync = { dp = sum } }", "%x = input f32[8] { sync = dp }\n"},
      {"%x = input f32[8] \"\\u00e9\\uD83D\\uDE00\\/\"", "%x = input f32[8] \"\xC3\xA9\xF0\x9F\x98\x80/\"\n"},
      {"%b = f at \"a\":2\n%x = input f32[8]\n", "%x = input f32[8]\n%b = f at \"a\":2\n"},
      {"func @f(%x) {\n%y = call %x { body = @g }\nreturn %y\n}\nfunc @h() -> ()\nfunc @g(%x) { return %x }\n"
       "%x = f\n%z = call %x { body = @f }",
       "func @f(%x) {\n  %y = call %x { body = @g }\n  return %y\n}\nfunc @g(%x) {\n  return %x\n}\n"
       "func @h() -> ()\n%x = f\n%z = call %x { body = @f }\n"},
  };
  for (const Row &row : kRows) {
    INFO(row.text);
    CHECK(reprint(with_mesh(row.text)) == with_mesh(row.printed));
  }
}

TEST_CASE("text: what is read, in the program") {
  ReadResult result = read(kExample);
  REQUIRE(result.errors.empty());
  const Program &program = result.program;
  REQUIRE(program.main.size() == 13);
  auto inst = [&](uint32_t i) { return program.insts[InstId{program.main.first.index + i}]; };
  CHECK(program.contexts.size() == 3);
  CHECK(program.contexts[ContextId{0}].mesh.index == 3);
  CHECK(program.meshes[MeshId{1}].offset == 8);

  // The origin of an instruction is where its statement begins.
  CHECK(kExample.substr(program.origins[program.main.first.index], 11) == "%h = matmul");
  CHECK(kExample.substr(program.param_origins[1], 10) == "%y = input");

  const AttrValue *target = program.find(inst(5).attrs, "type");
  REQUIRE(target);
  CHECK(target->form == AttrForm::Claim);
  const Type &moved = program.types[program.claims[target->as<ClaimId>()].type];
  CHECK(moved.order(AxisId{1}) == 0);
  CHECK(moved.order(AxisId{0}) == 1);

  const Inst map = inst(10);
  CHECK(program.op_name(map.op) == "local_map");
  const AttrValue *body = program.find(map.attrs, "body");
  REQUIRE(body);
  const Function &function = program.functions[body->as<FunctionId>()];
  CHECK(program.strings[function.name] == "@local_map_0");
  CHECK(program.contexts[function.context].local == AxisSet(AxisId{1}));
  CHECK(program.find(map.attrs, "in_types")->form == AttrForm::List);
  CHECK(!program.values[map.first_result].declared.valid());

  CHECK(inst(12).phase == Phase::Optimizer);
  CHECK(program.blocks[inst(12).operands][0].mut);
  CHECK(!program.contexts[inst(12).context].grad);
  CHECK(program.values[inst(12).first_result].alias_of.valid());
}

TEST_CASE("text: axes of size 1 and flattened axes in claims") {
  std::string mesh = "mesh m { a = 2, one = 1, b = 2, ab = (a, b) }\n";
  CHECK(reprint(mesh + "%x = input f32[8@a, 4@one] I@b\n") == mesh + "%x = input f32[8@a, 4] I@b\n");
  CHECK(reprint(mesh + "%x = input f32[8] R@ab I@one\n") == mesh + "%x = input f32[8] R@a R@b\n");
  CHECK(reprint(mesh + "%x = input f32[8] { step = R@one }\n") == mesh + "%x = input f32[8] { step = null }\n");
}

TEST_CASE("text: one error each, where it stands") {
  struct Row {
    std::string_view text;
    std::string_view where, name, says;
  };
  static constexpr Row kRows[] = {
      // trace-syntax
      {"%x = input f32[8", "2:17", "trace-syntax", "the end of the file stands where"},
      {"%x = input f32[8] \"abc\n", "2:19", "trace-syntax", "not closed"},
      {"%x = input f32[8] \"a\\qb\"\n", "2:19", "trace-syntax", "escape"},
      {"%x = f \xC3\xA9\n", "2:8", "trace-syntax", "no character of this language"},
      {"%x = f 12ab\n", "2:8", "trace-syntax", "neither a number nor a name"},
      {"%x = f 1 2\n", "2:10", "trace-syntax", "`2` stands where the end of the statement"},
      {"%x f\n", "2:4", "trace-syntax", "`f` stands where `=`"},
      {"return %x\n", "2:1", "trace-syntax", "outside of a block"},
      {"with { grad = false } { mesh q { a = 2 } }\n", "2:25", "trace-syntax", "belongs outside"},
      {"local tp { %x = input f32[8] }\n", "2:17", "trace-syntax", "declarations stand outside"},
      {"%x, %y = input f32[8]\n", "2:10", "trace-syntax", "makes one value"},
      {"func @f(%x) { %y = g %x }\n", "2:25", "trace-syntax", "`return`"},
      {"%x = input f32[8] R@R\n", "2:21", "trace-syntax", "is a kind"},
      {"%x = f { a = 1\n", "3:1", "trace-syntax", "`,` or `}`"},
      {"%y = g 1, { a = %x = 3 }\n", "2:11", "trace-syntax", "`{` stands where an operand"},
      {"local_map over tp () { yield }\n", "2:1", "trace-syntax", "no results"},
      {"%x = f { axis = () }\n", "2:18", "trace-syntax", "list of axes is empty"},
      // trace-encoding
      {"// \xFF\n", "2:4", "trace-encoding", "not UTF-8"},
      {"// \xED\xA0\x80\n", "2:4", "trace-encoding", "not UTF-8"},
      // trace-version, trace-feature
      {"trace { version = \"2.0\" }\n", "2:19", "trace-version", "2.0"},
      {"trace { requires = [magic] }\n", "2:21", "trace-feature", "`magic`"},
      // trace-key
      {"trace { version = \"one\" }\n", "2:19", "trace-key", "1.0"},
      {"trace { mode = locl }\n", "2:16", "trace-key", "no mode, nearest is `local`"},
      {"trace { phase = forwards }\n", "2:17", "trace-key", "nearest is `forward`"},
      {"trace { missing = [grad] }\n", "2:20", "trace-key", "nearest is `grads`"},
      {"trace { world = 8, world = 8 }\n", "2:20", "trace-key", "repeated"},
      {"%x = f { phase = forward }\n", "2:18", "trace-key", "no phase"},
      {"%x = f { a = 1, a = 2 }\n", "2:17", "trace-key", "repeated"},
      {"%x = f { to = R, type = R }\n", "2:18", "trace-key", "repeated"},
      {"%x = param f32[8] { sync = { dp = max } }\n", "2:35", "trace-key", "sum and avg"},
      {"suppress a-b { scope = \"x\" }\n", "2:10", "trace-key", "no `reason`"},
      {"suppress a-b { reason = \"x\", until = \"soon\" }\n", "2:38", "trace-key", "no date"},
      {"file \"a\" { sha256 = \"12\" }\n", "2:21", "trace-key", "64"},
      {"%x = f at \"a\":0\n", "2:15", "trace-key", "at least 1"},
      {"group \"a\" = m.tp\ngroup \"a\" = m.dp\n", "3:7", "trace-key", "twice"},
      {"rule f = \"-> []\"\nrule f like g\n", "3:6", "trace-key", "second rule"},
      // trace-duplicate, trace-reference
      {"%x = f\n%x = f\n", "3:1", "trace-duplicate", "`%x`"},
      {"%x, %x = f\n", "2:5", "trace-duplicate", "`%x`"},
      {"func @f(%x, %x) { return %x }\n", "2:13", "trace-duplicate", "`%x`"},
      {"func @f() -> ()\nfunc @f() -> ()\n", "3:6", "trace-duplicate", "`@f`"},
      {"mesh m { a = 2 }\n", "2:6", "trace-duplicate", "`m`"},
      {"symbol s\nsymbol s\n", "3:8", "trace-duplicate", "`s`"},
      {"%abc = f\n%y = g %abd\n", "3:8", "trace-reference", "`%abd` is defined up to here, nearest is `%abc`"},
      {"%y = g %y\n", "2:8", "trace-reference", "`%y`"},
      {"%x = f\nfunc @f() { return %x }\n", "3:20", "trace-reference", "`%x`"},
      {"%x = f\n%y = local_map over tp (%q = %x) { yield %x }\n", "3:42", "trace-reference", "`%x`"},
      {"%x = call 1 { body = @mpl }\nfunc @mlp() -> ()\n", "2:22", "trace-reference", "nearest is `@mlp`"},
      {"%x grad_of %y = input f32[8]\n", "2:12", "trace-reference", "`%y`"},
      {"%x grad_of %y = f\n%y = g\n", "2:12", "trace-reference", ""},
      {"mesh mm\n", "2:6", "trace-reference", "nearest is `m`"},
      {"%x = input f32[8] on q\n", "2:22", "trace-reference", "`q`"},
      {"%x = f { mesh = q }\n", "2:17", "trace-reference", "`q`"},
      {"with { mesh = q } { }\n", "2:15", "trace-reference", "`q`"},
      {"group \"a\" = q.tp\n", "2:13", "trace-reference", "`q`"},
      // trace-mesh
      {"mesh q { a = 0 }\n", "2:14", "trace-mesh", "at least 1"},
      {"mesh q { a = 2:2, b = 2:2 }\n", "2:6", "trace-mesh", "overlap"},
      {"mesh q { a = 2, a = 2 }\n", "2:6", "trace-mesh", "twice"},
      {"mesh q { a }\n", "2:10", "trace-mesh", "no size"},
      {"mesh q { }\n", "2:6", "trace-mesh", "no axes"},
      {"mesh q { a = 2, b = (c) }\n", "2:22", "trace-mesh", "no axis `c`"},
      {"mesh q within m { dp = 2 } { tp }\n", "2:19", "trace-mesh", "no coordinate 2"},
      {"mesh q within m { dq = 1 } { tp }\n", "2:19", "trace-mesh", "nearest is `dp`"},
      {"mesh q { a = s0 }\n", "2:14", "trace-mesh", "symbolic"},
      {"group \"a\" = m.pp\n", "2:15", "trace-mesh", "nearest is"},
      {"group \"a\" = [1, 1]\n", "2:13", "trace-mesh", "twice"},
      {"group \"a\" = [1:1, 2]\n", "2:13", "trace-mesh", "neither"},
      {"trace { world = 4 }\n", "3:1", "trace-mesh", "has 8 ranks"},
      {"trace { world = 8, rank = 8 }\n", "3:1", "trace-mesh", "`rank` is 8"},
      // trace-shape
      {"%x = input f31[8]\n", "2:12", "trace-shape", "nearest is `f32`"},
      {"%x = input f32[s1]\n", "2:16", "trace-shape", "no symbol is named `s1`"},
      {"%x = input f32[8/0]\n", "2:16", "trace-shape", "divides by zero"},
      {"%x = input f32[3-4]\n", "2:16", "trace-shape", "negative"},
      {"%x = input f32[8, 8] of [16]\n", "2:25", "trace-shape", "1 dimensions, the local one 2"},
      {"symbol s { multiple_of = 0 }\n", "2:26", "trace-shape", "at least 1"},
      {"symbol s { min = 2, max = 1 }\n", "2:8", "trace-shape", "above"},
      // trace-type
      {"%x = input f32[8] R@pt\n", "2:19", "trace-type", "nearest is `tp`"},
      {"%x = input f32[8@pt]\n", "2:17", "trace-type", "no axis `pt`"},
      {"%x = input f32[8] R@tp V@tp\n", "2:24", "trace-type", "claimed twice"},
      {"%x = input f32[8] R V\n", "2:21", "trace-type", "claimed twice"},
      {"%x = input f32[8@tp] R@tp\n", "2:12", "trace-type", "claimed R, not V"},
      {"%x = input f32[8@tp, 4@tp]\n", "2:23", "trace-type", "shards two dimensions"},
      {"%x = input f32[8@tp] S(0)@dp\n", "2:12", "trace-type", "order is unknown"},
      {"%x = input f32[8] S(1)@tp\n", "2:12", "trace-type", "1 dimension"},
      {"%x = input f32[8] S(-2)@tp\n", "2:12", "trace-type", "1 dimension"},
      {"%x = input f32[8] S(0)\n", "2:12", "trace-type", "order is unknown"},
      {"%x: S(-1)@tp = f\n", "2:5", "trace-type", "counts from the end"},
      {"%x: S(15)@tp = f\n", "2:7", "trace-type", "15"},
      {"%x = input f32[8] P(mean)@tp\n", "2:21", "trace-key", "no combiner"},
      {"%x = input f32[8] scale pq\n", "2:12", "trace-type", "neither an axis nor a symbol"},
      {"%x = input f32[8] scale dp+tp\n", "2:25", "trace-type", "no product"},
      {"%x = f { axis = pt }\n", "2:17", "trace-type", "nearest is `tp`"},
      {"%x = f { axis = q.tp }\n", "2:17", "trace-type", "no mesh is named `q`"},
      {"%x = f { by = pq }\n", "2:15", "trace-type", "neither"},
      {"local pt { }\n", "2:7", "trace-type", "nearest is `tp`"},
      // trace-rule
      {"rule f = \"x[...]\"\n", "2:10", "trace-rule", "no `->`"},
      // trace-limit
      {"%x = f 1e999\n", "2:8", "trace-limit", "double"},
      {"%x = f 9007199254740993\n", "2:8", "trace-limit", "2^53"},
      {"%x = input f32[9007199254740993]\n", "2:16", "trace-limit", "2^53"},
      {"%x = input f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]\n", "2:46", "trace-limit", "15 dimensions"},
      {"mesh q { a=2,b=2,c=2,d=2,e=2,f=2,g=2,h=2,i=2,j=2,k=2,l=2,n=2,o=2,p=2,q=2,r=2 }\n", "2:6", "trace-limit", "16"},
  };
  for (const Row &row : kRows) {
    INFO(row.text);
    std::vector<InputError> errors = read(with_mesh(row.text)).errors;
    INFO(describe(errors));
    CHECK(errors.size() == 1);
    if (errors.size() != 1)
      continue;
    CHECK(std::to_string(errors[0].line) + ":" + std::to_string(errors[0].col) == row.where);
    CHECK(errors[0].name == row.name);
    CHECK(errors[0].message.find(row.says) != std::string::npos);
    CHECK(line_and_column(with_mesh(row.text), errors[0].offset) == std::pair(errors[0].line, errors[0].col));
  }
}

TEST_CASE("text: errors without a mesh, and limits that need long input") {
  auto only = [](const std::string &text) {
    std::vector<InputError> errors = read(text).errors;
    INFO(describe(errors));
    REQUIRE(errors.size() == 1);
    return std::string(errors[0].name);
  };
  CHECK(only("") == "trace-mesh");
  CHECK(only("%x = input f32[8] R\n%y = f %x") == "trace-mesh");
  CHECK(only("\xEF\xBB\xBFmesh m { a = 2 }\n") == "trace-encoding");
  CHECK(only(with_mesh("%x = f " + std::string(100, '['))) == "trace-limit");
  CHECK(only(with_mesh("%x = input f32[" + std::string(100, '(') + "1" + std::string(100, ')') + "]")) == "trace-limit");
  std::string blocks;
  for (int i = 0; i < 100; ++i)
    blocks += "local tp {\n";
  CHECK(only(with_mesh(blocks)) == "trace-limit");
  CHECK(only(with_mesh("%x = f \"" + std::string(kMaxString + 1, 'a') + "\"")) == "trace-limit");
  CHECK(read(with_mesh("%x = f \"" + std::string(kMaxString, 'a') + "\"")).errors.empty());
}

TEST_CASE("text: reading goes on after an error, up to twenty") {
  ReadResult result = read(with_mesh("%x = f )\n%y = g {\n  a = ,\n}\n%z = h %x\n%z = h\nfunc @f(%a { return %a }\n%w = f 1e999\n"));
  INFO(describe(result.errors));
  REQUIRE(result.errors.size() == 5);
  CHECK(result.errors[3].name == "trace-syntax");
  CHECK(result.errors[4].line == 9);

  std::string many;
  for (int i = 0; i < 100; ++i)
    many += "%x = f )\n";
  CHECK(read(with_mesh(many)).errors.size() == kMaxInputErrors);
}

TEST_CASE("text: newer versions and unknown keys") {
  std::string text = "trace { version = \"1.7\", wrold = { a = [1, %x] } }\nmesh m { a = 2 }\n";
  text.replace(text.find(", %x"), 4, "");
  ReadResult lenient = read(text);
  CHECK(lenient.errors.empty());
  REQUIRE(lenient.warnings.size() == 1);
  CHECK(lenient.warnings[0].name == "trace-newer");
  ReadResult strict = read_text(text, {.strict_schema = true});
  REQUIRE(strict.warnings.size() == 2);
  CHECK(strict.warnings[1].message == "the trace has no key `wrold`, nearest is `world`");
}

TEST_CASE("text: a whole spec asks for more than single shards") {
  ReadResult result = read("mesh m { a = 2, b = 2, one = 1 }\n");
  Program &program = result.program;
  auto axis = [&](llvm::StringRef name) { return AxisRef{{}, program.strings.add(name)}; };
  auto error = [&](auto &&claims, std::optional<unsigned> rank) {
    ClaimBuilder builder(program, MeshId{0});
    claims(builder);
    return builder.finish(rank).error;
  };
  KindWord v = *parse_kind("V"), s0 = *parse_kind("S(0)");
  auto whole = [&](ClaimBuilder &c) { c.claim(v, axis("a")), c.shard(0, axis("a")), c.whole_spec(2); };
  CHECK(error(whole, 2) == "");
  CHECK(error(whole, 3) == "the spec has 2 entries for 3 dimensions");
  CHECK(error([&](ClaimBuilder &c) { c.shard(0, axis("a")), c.whole_spec(1); }, 1) ==
        "axis `a` stands in the spec and is not claimed V");
  CHECK(error([&](ClaimBuilder &c) { c.claim(v), c.shard(0, axis("a")), c.whole_spec(1); }, 1) == "");
  CHECK(error([&](ClaimBuilder &c) { c.claim(s0, axis("a")), c.whole_spec(1); }, 1) == "S(0) stands beside a spec");
  CHECK(error([&](ClaimBuilder &c) { c.claim(s0, axis("a")), c.claim(s0, axis("b")); }, 1) ==
        "axes `a` and `b` both shard dimension 0, and their order is unknown");
  CHECK(error([&](ClaimBuilder &c) { c.claim(s0, axis("a")), c.claim(s0, axis("one")); }, 1) == "");
}

TEST_CASE("text: pieces for sentences") {
  ReadResult result = read(kExample);
  REQUIRE(result.errors.empty());
  const Program &program = result.program;
  const Value &w = program.values[program.params[6].value];
  CHECK(print_type(program, program.types[w.declared], w.shape) == "f32[16@tp, 64] R@dp");
  CHECK(print_kinds(program, program.types[w.declared]) == "R@dp S(0)@tp");
  const Value &y = program.values[program.params[1].value];
  CHECK(print_kinds(program, program.types[y.declared]) == "S(0)@dp S(0)@tp");
  CHECK(print_type(program, program.types[y.declared], {}) == "S(0)@(dp, tp)");
  CHECK(print_shape(program, y.shape) == "bf16[64, 128]");
  CHECK(print_axes(program, MeshId{3}, program.meshes[MeshId{3}].typed_axes()) == "dp, tp");
  InstId map{program.main.first.index + 10};
  CHECK(print_inst(program, map) == "%o = local_map %x { axis = tp, in_types = [S(1)@tp], "
                                    "out_types = [R@dp S(1)@tp], body = @local_map_0 }");
  CHECK(print_inst(program, InstId{map.index - 1}) == "assert_type %r { type = R@dp R@tp }");
}

TEST_CASE("text: strings in quotes") {
  CHECK(quote("a\"\\\n\t\x01/") == "\"a\\\"\\\\\\n\\t\\u0001/\"");
  CHECK(unescape("\\u0041\\uD83D\\uDE00") == "A\xF0\x9F\x98\x80");
  for (const char *bad : {"\\", "\\x", "\\u12", "\\u12g4", "\\uD83D", "\\uD83D\\u0041", "\\uDE00"})
    CHECK(!unescape(bad));
}

TEST_CASE("text: every case reads, or is refused with a place, and round-trips") {
  size_t read_well = 0;
  for (const std::filesystem::path &path : case_files()) {
    INFO(path.string());
    std::string text = contents(path);
    ReadResult result = read_text(text);
    for (const InputError &error : result.errors)
      CHECK(error.line > 0);
    if (!result.errors.empty())
      continue;
    ++read_well;
    std::string printed = print_text(result.program);
    CHECK(reprint(printed) == printed);
  }
  CHECK(read_well > 0);
}

namespace {

// Deterministic, and good enough to pick places.
struct Random {
  uint64_t state;
  uint64_t below(uint64_t bound) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return bound ? state % bound : 0;
  }
};

std::string mutate(std::string text, Random &random) {
  static constexpr std::string_view kBytes = "{}()[]%@\"\\,:=./|?-+*;\n \t0189azRSPVI_\xC3\xA9\xFF";
  for (uint64_t edits = 1 + random.below(3); edits > 0; --edits) {
    size_t at = random.below(text.size()), length = 1 + random.below(12);
    switch (random.below(4)) {
    case 0:
      text.erase(at, length);
      break;
    case 1:
      text.insert(random.below(text.size()), text.substr(at, length));
      break;
    case 2:
      text[at] = kBytes[random.below(kBytes.size())];
      break;
    default:
      text.insert(at, 1, kBytes[random.below(kBytes.size())]);
    }
    if (text.empty())
      text = "m";
  }
  return text;
}

// Whatever is read without errors is well formed, and prints as something that reads.
void check_bytes(const std::string &text) {
  ReadResult result = read_text(text);
  if (result.errors.size() > kMaxInputErrors)
    FAIL(text);
  if (!result.errors.empty() || !verify(result.program).empty())
    return;
  std::string printed = print_text(result.program);
  ReadResult again = read_text(printed);
  if (!again.errors.empty() || print_text(again.program) != printed)
    FAIL(describe(again.errors) << "of\n" << text << "printed as\n" << printed);
}

} // namespace

TEST_CASE("text: no bytes make the reader or the printer fail in another way") {
  std::string example(kExample);
  for (size_t length = 0; length <= example.size(); ++length)
    check_bytes(example.substr(0, length));

  std::vector<std::string> seeds = {example};
  for (const std::filesystem::path &path : case_files())
    if (std::filesystem::file_size(path) < 4096 && seeds.size() < 24)
      seeds.push_back(contents(path));
  Random random{0x5EED5EED5EED5EEDull};
  for (int i = 0; i < 20'000; ++i)
    check_bytes(mutate(seeds[i % seeds.size()], random));
  SUCCEED();
}
