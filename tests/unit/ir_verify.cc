// Each kind of damage to a well-formed program is found; formats are recognised by content.
#include "ir/input/input.h"
#include "tests/unit/catch.h"

#include <functional>

using namespace spmd::ir;

namespace {

// %x = input; @f(%a) { %b = op %a; return %b }; %y = op %x { body = @f }; output %y
Program sample() {
  Program program;
  Mesh mesh;
  mesh.name = program.strings.add("m");
  Axis axis;
  axis.name = program.strings.add("tp");
  axis.layout = {{4, 1}};
  mesh.axes = {axis};
  REQUIRE(finish(mesh, program.strings) == "");
  program.meshes.add(mesh);

  Builder builder(program);
  auto define = [&](const char *name) {
    Value value;
    value.name = make_name(name, program.strings);
    return *builder.define(value);
  };
  auto add_op = [&](ValueId operand, const char *result, AttrDict attrs) {
    Inst inst;
    inst.op = OpNameId{builder.string("op").index};
    inst.operands = program.operand_lists.add({Operand::value(operand)});
    inst.attrs = builder.attrs(std::move(attrs));
    inst.context = ContextId{0};
    inst.first_result = define(result);
    inst.result_count = 1;
    builder.add(inst, 0);
    return inst.first_result;
  };
  Param param;
  param.value = define("x");
  program.params.push_back(param);
  FunctionId f = builder.function("@f");
  builder.open_body();
  ValueId a = define("a");
  ValueId b = add_op(a, "b", {});
  program.functions[f].params.push_back({a, {}});
  program.functions[f].body = builder.close_body();
  program.functions[f].results = program.operand_lists.add({Operand::value(b)});
  AttrDict attrs;
  attrs.attrs.push_back({builder.string("body"), AttrValue::function(f)});
  Output output;
  output.value = add_op(param.value, "y", attrs);
  program.outputs.push_back(output);
  builder.finish();
  return program;
}

std::string first_error(const std::function<void(Program &)> &damage) {
  Program program = sample();
  damage(program);
  std::vector<InputError> errors = verify(program);
  return errors.empty() ? "" : std::string(errors[0].name) + ": " + errors[0].message;
}

Inst &inst(Program &program, uint32_t i) { return program.insts[InstId{i}]; }

OperandsId block(Program &program, Operand operand) { return program.operand_lists.add({operand}); }

} // namespace

TEST_CASE("damage to a program is found") {
  struct Row {
    const char *error;
    std::function<void(Program &)> damage;
  };
  const Row rows[] = {
      {"", [](Program &) {}},
      {"trace-reference: op name 9999 does not exist",
       [](Program &p) { inst(p, 0).op = OpNameId{9999}; }},
      {"trace-reference: dictionary 9999 does not exist",
       [](Program &p) { inst(p, 0).attrs = AttrsId{9999}; }},
      {"trace-reference: operand list 9999 does not exist",
       [](Program &p) { inst(p, 0).operands = OperandsId{9999}; }},
      {"trace-reference: context 99 does not exist",
       [](Program &p) { inst(p, 0).context = ContextId{99}; }},
      {"trace-reference: location 0 does not exist", [](Program &p) { inst(p, 0).loc = LocId{0}; }},
      {"trace-reference: a result does not exist",
       [](Program &p) { inst(p, 0).result_count = 99; }},
      {"trace-reference: value 77 does not exist",
       [](Program &p) { block(p, Operand::value(ValueId{77})); }},
      {"trace-reference: literal 0 does not exist",
       [](Program &p) { block(p, Operand::literal(0)); }},
      {"trace-reference: operand list 44 does not exist",
       [](Program &p) { block(p, Operand::list(OperandsId{44})); }},
      {"trace-reference: a name in an operand list has no operand",
       [](Program &p) { block(p, Operand::name(StringId{0})); }},
      {"trace-reference: an attribute holds an id that does not exist",
       [](Program &p) { p.literals.push_back(AttrValue::string(StringId{9999})); }},
      {"trace-reference: an attribute holds an id that does not exist",
       [](Program &p) { p.lists.add({{AttrValue::scale(ScaleId{5})}}); }},
      {"trace-type: a type claims something on an axis that is flattened, of size 1 or not in its "
       "mesh",
       [](Program &p) {
         Type type;
         type.set_kind(AxisId{1}, Kind::Replicate);
         p.types.add(type);
       }},
      {"trace-reference: mesh 3 does not exist",
       [](Program &p) {
         p.contexts.add({MeshId{3}, {}, true, true, false, 0});
       }},
      {"trace-reference: a local axis is not in the mesh of its context",
       [](Program &p) {
         p.contexts.add({MeshId{0}, AxisId{4}, true, true, false, 0});
       }},
      {"trace-mesh: a mesh was not finished", [](Program &p) { p.meshes[MeshId{0}].typed = {}; }},
      {"trace-reference: function `@g` is not defined",
       [](Program &p) {
         Function g;
         g.name = p.strings.add("@g");
         p.functions.add(g);
       }},
      {"trace-reference: bodies overlap or leave a gap at op 1",
       [](Program &p) { p.main.first = InstId{0}; }},
      {"trace-reference: op 1 is in no body", [](Program &p) { p.main.last = InstId{1}; }},
      {"trace-reference: operand %y is not defined before its use",
       [](Program &p) { inst(p, 1).operands = block(p, Operand::value(inst(p, 1).first_result)); }},
      {"trace-reference: operand %a is not defined before its use",
       [](Program &p) { inst(p, 1).operands = inst(p, 0).operands; }},
      {"trace-reference: operand %a is not defined before its use",
       [](Program &p) { inst(p, 1).operands = block(p, Operand::list(inst(p, 0).operands)); }},
      {"trace-duplicate: %b is defined twice",
       [](Program &p) { inst(p, 1).first_result = inst(p, 0).first_result; }},
      {"trace-reference: `bwd_of` %y is not defined before its use",
       [](Program &p) { inst(p, 1).bwd_of = inst(p, 1).first_result; }},
      {"trace-reference: `alias_of` %b is not defined before its use",
       [](Program &p) { p.values[inst(p, 1).first_result].alias_of = inst(p, 0).first_result; }},
      {"trace-reference: output %b is not defined before its use",
       [](Program &p) { p.outputs[0].value = inst(p, 0).first_result; }},
      {"trace-reference: function `@f` calls itself",
       [](Program &p) { inst(p, 0).attrs = inst(p, 1).attrs; }},
      {"trace-reference: a value has no definition",
       [](Program &p) { p.values.add(p.values[ValueId{0}]); }},
      {"trace-reference: ops and their offsets are not of equal number",
       [](Program &p) { p.origins.pop_back(); }},
  };
  for (const Row &row : rows)
    CHECK(first_error(row.damage) == row.error);
}

TEST_CASE("the gradient of a result may enter as a parameter") {
  CHECK(first_error([](Program &p) { p.values[p.params[0].value].grad_of = p.outputs[0].value; }) ==
        "");
}

TEST_CASE("an error says where") {
  Program program = sample();
  program.origins = {5, 6};
  inst(program, 1).operands = inst(program, 0).operands;
  std::vector<InputError> errors = verify(program);
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].path == "ops[0]");
  CHECK(errors[0].offset == 6);
}

TEST_CASE("lines and columns count code points") {
  CHECK(line_and_column("ab\ncd", 0) == std::pair(1u, 1u));
  CHECK(line_and_column("ab\ncd", 3) == std::pair(2u, 1u));
  CHECK(line_and_column("ab\ncd", 4) == std::pair(2u, 2u));
  CHECK(line_and_column("\xC3\xA9\xE2\x82\xAC!", 5) == std::pair(1u, 3u));
  CHECK(line_and_column("ab", 99) == std::pair(1u, 3u));
}
