// Input errors of the text form: each with its name and where it stands.
#include "ir/claims.h"
#include "ir/text/lexer.h"

#include "tests/unit/text_programs.h"

using namespace spmd::ir;
using namespace spmd::ir::text;

namespace {

struct Row {
  std::string_view text;
  std::string_view where, name, says;
};
constexpr Row kRows[] = {
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
    {"suppress a { reason = \"x\" } in \"b\"\n", "2:29", "trace-syntax", "`in` stands where"},
    {"%w = input f32[8]\n%x = f [mut %w]\n", "3:9", "trace-syntax", "as a whole"},
    // trace-encoding
    {"// \xFF\n", "2:4", "trace-encoding", "not UTF-8"},
    {"// \xED\xA0\x80\n", "2:4", "trace-encoding", "not UTF-8"},
    // trace-version, trace-feature
    {"trace { version = \"2.0\" }\n", "2:19", "trace-version", "2.0"},
    {"trace { requires = [magic] }\n", "2:21", "trace-feature", "`magic`"},
    {"%x = f { a = mut [1] }\n", "2:18", "trace-reference", "holds no value"},
    // trace-key
    {"trace { version = \"one\" }\n", "2:19", "trace-key", "1.0"},
    {"trace { mode = locl }\n", "2:16", "trace-key", "no mode, nearest is `local`"},
    {"trace { phase = forwards }\n", "2:17", "trace-key", "nearest is `forward`"},
    {"trace { missing = [grad] }\n", "2:20", "trace-key", "nearest is `grads`"},
    {"trace { world = 8, world = 8 }\n", "2:20", "trace-key", "repeated"},
    {"%x = f { phase = forward }\n", "2:18", "trace-key", "no phase"},
    {"%x = f { a = 1, a = 2 }\n", "2:17", "trace-key", "repeated"},
    {"%x = f { spec = t }\n", "2:8", "trace-key", "`spec` is a part of a type"},
    {"%x = f { shape = [8], type = R }\n", "2:8", "trace-key", "`shape` is a part of a type"},
    {"assert_type 1 { scale = 2 }\n", "2:15", "trace-key", "`scale` is a part of a type"},
    {"%x = f { to = R, type = R }\n", "2:18", "trace-key", "repeated"},
    {"%x = param f32[8] { sync = { dp = max } }\n", "2:35", "trace-key", "sum and avg"},
    {"%x = param f32[8] { hints = { dp = 3 } }\n", "2:36", "trace-syntax", "a text"},
    {"suppress a-b { scope = \"x\" }\n", "2:10", "trace-key", "no `reason`"},
    {"suppress a-b { reason = \"x\", until = \"soon\" }\n", "2:38", "trace-key", "no date"},
    {"trace { x_a = \"{1}\" }\n", "2:15", "trace-key", "no JSON"},
    {"trace { x_a = \"1 2\" }\n", "2:15", "trace-key", "no JSON"},
    {"file \"a\" { sha256 = \"12\" }\n", "2:21", "trace-key", "64"},
    {"%x = f at \"a\":0\n", "2:15", "trace-key", "at least 1"},
    {"group \"a\" = m.tp\ngroup \"a\" = m.dp\n", "3:7", "trace-key", "twice"},
    {"rule f = \"-> []\"\nrule f like g\n", "3:6", "trace-key", "second rule"},
    {"trace { version = \"1.1000000000\" }\n", "2:19", "trace-key", "1.0"},
    {"trace { x_a = \"1\" }\ntrace { x_a = \"2\" }\n", "3:15", "trace-key", "repeated"},
    // What JSON has no name for.
    {"\"\"\n", "2:1", "trace-key", "no name of an op"},
    {"%x = \"a b\" 1\n", "2:6", "trace-key", "`a b` is no name of an op"},
    {"%\"a b\" = f\n", "2:1", "trace-key", "`a b` is no name of a value"},
    {"%\"\" = f\n", "2:1", "trace-key", "no name of a value"},
    {"func @\"\"() -> ()\n", "2:6", "trace-key", "a function has no name"},
    {"suppress _a { reason = \"x\" }\n", "2:10", "trace-key", "`_a` is no name of a finding"},
    {"%x = f { ignore = \"a b\" }\n", "2:19", "trace-key", "`a b` is no name of a finding"},
    {"%x = f at \"a\":2147483648\n", "2:15", "trace-limit", "2^31"},
    {"%x = f expect error \"\"\n", "2:21", "trace-key", "no name of a finding"},
    // trace-duplicate, trace-reference
    {"%x = f\n%x = f\n", "3:1", "trace-duplicate", "`%x`"},
    {"%x, %x = f\n", "2:5", "trace-duplicate", "`%x`"},
    {"func @f(%x, %x) { return %x }\n", "2:13", "trace-duplicate", "`%x`"},
    {"func @f() -> ()\nfunc @f() -> ()\n", "3:6", "trace-duplicate", "`@f`"},
    {"mesh m { a = 2 }\n", "2:6", "trace-duplicate", "`m`"},
    {"symbol s\nsymbol s\n", "3:8", "trace-duplicate", "`s`"},
    {"%abc = f\n%y = g %abd\n", "3:8", "trace-reference",
     "`%abd` is defined up to here, nearest is `%abc`"},
    {"%y = g %y\n", "2:8", "trace-reference", "`%y`"},
    {"%x = f\nfunc @f() { return %x }\n", "3:20", "trace-reference", "`%x`"},
    {"%x = f\n%y = local_map over tp (%q = %x) { yield %x }\n", "3:42", "trace-reference", "`%x`"},
    {"%x = call 1 { body = @mpl }\nfunc @mlp() -> ()\n", "2:22", "trace-reference",
     "nearest is `@mlp`"},
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
    {"mesh q { a = s0 }\n", "2:14", "trace-shape", "no symbol is named"},
    {"group \"a\" = m.pp\n", "2:15", "trace-mesh", "nearest is"},
    {"group \"a\" = [1, 1]\n", "2:13", "trace-mesh", "twice"},
    {"group \"a\" = [1:1, 2]\n", "2:13", "trace-mesh", "neither"},
    {"group \"a\" = [0:1]\n", "2:14", "trace-mesh", "size 0"},
    {"group \"a\" = m.tp offset 3\n", "2:18", "trace-mesh", "no layout"},
    {"group \"a\" = [0, 3] offset 3\n", "2:20", "trace-mesh", "no layout"},
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
    {"%x = input f32[8] R@tpp\n", "2:19", "trace-type", "nearest is `tp`"},
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
    {"%x = f { by = pq }\n", "2:15", "trace-type", "neither"},
    {"local tpp { }\n", "2:7", "trace-type", "nearest is `tp`"},
    {"mesh q { a = () }\n", "2:15", "trace-syntax", "a symbol or `(`"},
    {"mesh q { a = [] }\n", "2:14", "trace-mesh", "no pieces"},
    {"%x = f { other = f32[8] V }\n", "2:18", "trace-key", "a type stands here"},
    // trace-truncated
    {"trace { op_count = 2 }\n%x = f\n", "4:1", "trace-truncated", "2 ops are announced, and 1"},
    // trace-rule
    {"rule f = \"x[...]\"\n", "2:10", "trace-rule", "no `->`"},
    // trace-limit
    {"%x = f 1e999\n", "2:8", "trace-limit", "double"},
    {"%x = f 9007199254740993\n", "2:8", "trace-limit", "2^53"},
    {"%x = input f32[9007199254740993]\n", "2:16", "trace-limit", "2^53"},
    {"%x = input f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]\n", "2:46", "trace-limit", "15 dimensions"},
    {"mesh q { a=2,b=2,c=2,d=2,e=2,f=2,g=2,h=2,i=2,j=2,k=2,l=2,n=2,o=2,p=2,q=2,r=2 }\n", "2:6",
     "trace-limit", "16"},
};

} // namespace

TEST_CASE("text: one error each, where it stands") {
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
    CHECK(line_and_column(with_mesh(row.text), errors[0].offset) ==
          std::pair(errors[0].line, errors[0].col));
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
  CHECK(only("trace { t = f32[] }\nmesh m { a = 2 }\n") == "trace-key");
  CHECK(only("\xEF\xBB\xBFmesh m { a = 2 }\n") == "trace-encoding");
  CHECK(only(with_mesh("%x = f " + std::string(100, '['))) == "trace-limit");
  CHECK(only(with_mesh("%x = input f32[" + std::string(400, '(') + "1" + std::string(400, ')') +
                       "]")) == "trace-limit");
  for (std::string_view form : {"%x = f <1>", "%x = f { a = <1> }", "%x = f { a = {b = <1>} }"}) {
    auto nested = [&](size_t depth) {
      std::string text(form);
      text.replace(text.find('>'), 1, std::string(depth, ']'));
      return with_mesh(text.replace(text.find('<'), 1, std::string(depth, '[')));
    };
    CHECK(read(nested(kMaxValueNesting - 1)).errors.empty());
    CHECK(only(nested(kMaxValueNesting + 1)) == "trace-limit");
  }
  CHECK(read(with_mesh("trace { x_a = \"" + std::string(63, '[') + std::string(63, ']') + "\" }"))
            .errors.empty());
  CHECK(only(with_mesh("trace { x_a = \"" + std::string(64, '[') + std::string(64, ']') +
                       "\" }")) == "trace-key");
  std::string blocks;
  for (int i = 0; i < 100; ++i)
    blocks += "local tp {\n";
  CHECK(only(with_mesh(blocks)) == "trace-limit");
  CHECK(only(with_mesh("%x = f \"" + std::string(kMaxString + 1, 'a') + "\"")) == "trace-limit");
  CHECK(read(with_mesh("%x = f \"" + std::string(kMaxString, 'a') + "\"")).errors.empty());
}

TEST_CASE("text: reading goes on after an error, up to twenty") {
  ReadResult result = read(with_mesh("%x = f )\n%y = g {\n  a = ,\n}\n%z = h %x\n%z = h\nfunc "
                                     "@f(%a { return %a }\n%w = f 1e999\n"));
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
  WrittenKind v = *parse_kind("V"), s0 = *parse_kind("S(0)");
  auto whole = [&](ClaimBuilder &c) {
    c.claim(v, axis("a")), c.shard(0, axis("a")), c.whole_spec(2);
  };
  CHECK(error(whole, 2) == "");
  CHECK(error(whole, 3) == "the spec has 2 entries for 3 dimensions");
  CHECK(error([&](ClaimBuilder &c) { c.shard(0, axis("a")), c.whole_spec(1); }, 1) ==
        "axis `a` stands in the spec and is not claimed V");
  CHECK(error([&](ClaimBuilder &c) { c.claim(v), c.shard(0, axis("a")), c.whole_spec(1); }, 1) ==
        "");
  CHECK(error([&](ClaimBuilder &c) { c.claim(s0, axis("a")), c.whole_spec(1); }, 1) ==
        "S(0) stands beside a spec");
  CHECK(error([&](ClaimBuilder &c) { c.claim(s0, axis("a")), c.claim(s0, axis("b")); }, 1) ==
        "axes `a` and `b` both shard dimension 0, and their order is unknown");
  CHECK(error([&](ClaimBuilder &c) { c.claim(s0, axis("a")), c.claim(s0, axis("one")); }, 1) == "");
}
