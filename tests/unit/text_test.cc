// The text form: what reads, how it prints, and that both agree, with JSON too. More programs stand
// in tests/cases; here are those that no case can hold.
#include "ir/claims.h"
#include "ir/dialect/print_type.h"
#include "ir/text/lexer.h"
#include "ir/text/text.h"

#include "tests/unit/text_programs.h"

using namespace spmd::ir;
using namespace spmd::ir::text;

TEST_CASE("text: the example of the format reads, prints and reads again") {
  CHECK(reprint(kExample) == kExamplePrinted);
  CHECK(reprint(kExamplePrinted) == kExamplePrinted);
}

TEST_CASE("text: canonical programs print as they stand") {
  for (std::string_view row : kCanonical) {
    std::string text = with_mesh(row);
    INFO(text);
    CHECK(reprint(text) == text);
  }
}

TEST_CASE("text: tables print as they stand") {
  for (std::string_view text : kTables) {
    INFO(text);
    CHECK(reprint(text) == text);
  }
}

TEST_CASE("text: JSON says the same") {
  auto through_json = [](const std::string &text) {
    ReadResult result = read(text);
    REQUIRE(result.errors.empty());
    ReadResult again = read_json(print_json(result.program));
    INFO((again.errors.empty() ? "" : again.errors[0].path + ": " + again.errors[0].message));
    CHECK(again.errors.empty());
    return again.errors.empty() ? print_text(again.program) : "";
  };
  CHECK(through_json(std::string(kExample)) == kExamplePrinted);
  for (std::string_view row : kTables) {
    INFO(row);
    CHECK(through_json(std::string(row)) == row);
  }
  for (std::string_view row : kCanonical) {
    INFO(row);
    CHECK(through_json(with_mesh(row)) == with_mesh(row));
  }
}

TEST_CASE("text: other spellings print canonically") {
  struct Row {
    std::string_view text, printed;
  };
  static constexpr Row kRows[] = {
      {"%x = input f32[8] { grad = null, sync = dp }", "%x = input f32[8] { sync = dp }\n"},
      {"%x = rng { type = null }", "%x = rng { type = null }\n"},
      {"%x = rng { type = R@tp }", "%x = rng R@tp\n"},
      {"%x = input f32[8] R", "%x = input f32[8] R@dp R@tp\n"},
      {"%x = f { op = \"@sum\", a = @\"@f\", b = @\"g\" }\nfunc @\"@f\"() -> ()\nfunc @g() -> ()",
       "func @\"@f\"() -> ()\nfunc @g() -> ()\n%x = f { op = \"@sum\", a = @\"@f\", b = @g }\n"},
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
      {"%x = f { b = 1, a = 2, dim = 3, axis = tp }",
       "%x = f { axis = tp, dim = 3, a = 2, b = 1 }\n"},
      {"with { grad = false } { local tp { %x = f } }",
       "with { local = tp, grad = false } {\n  %x = f\n}\n"},
      {"with { local = tp } { %x = f }", "local tp {\n  %x = f\n}\n"},
      {"%x = input f32[8] { sync = { dp = sum } }", "%x = input f32[8] { sync = dp }\n"},
      {"%x = input f32[8] \"\\u00e9\\uD83D\\uDE00\\/\"",
       "%x = input f32[8] \"\xC3\xA9\xF0\x9F\x98\x80/\"\n"},
      {"%b = f at \"a\":2\n%x = input f32[8]\n", "%x = input f32[8]\n%b = f at \"a\":2\n"},
      {"func @f(%x) {\n%y = call %x { body = @g }\nreturn %y\n}\nfunc @h() -> ()\nfunc @g(%x) { "
       "return %x }\n"
       "%x = f\n%z = call %x { body = @f }",
       "func @f(%x) {\n  %y = call %x { body = @g }\n  return %y\n}\nfunc @g(%x) {\n  return "
       "%x\n}\n"
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
  CHECK(program.operand_lists[inst(12).operands][0].mut);
  CHECK(!program.contexts[inst(12).context].grad);
  CHECK(program.values[inst(12).first_result].alias_of.valid());
}

TEST_CASE("text: axes of size 1 and flattened axes in claims") {
  std::string mesh = "mesh m { a = 2, one = 1, b = 2, ab = (a, b) }\n";
  CHECK(reprint(mesh + "%x = input f32[8@a, 4@one] I@b\n") ==
        mesh + "%x = input f32[8@a, 4] I@b\n");
  CHECK(reprint(mesh + "%x = input f32[8] R@ab I@one\n") == mesh + "%x = input f32[8] R@a R@b\n");
  CHECK(reprint(mesh + "%x = input f32[8] { step = R@one }\n") ==
        mesh + "%x = input f32[8] { step = null }\n");
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
