// Stores, interners, names, the Builder, and the small values: extents, scales, kinds, attributes.
#include "ir/input/input.h"
#include "tests/unit/catch.h"

#include <random>

using namespace spmd::ir;

namespace {

std::string reprint_extent(llvm::StringRef text) {
  ExprTable table;
  StringTable names;
  std::optional<Extent> extent = parse_extent(text, table, names);
  return extent ? print(*extent, table, names) : "-";
}

std::string reprint_scale(llvm::StringRef text) {
  StringTable names;
  std::optional<Scale> scale = parse_scale(text, names);
  return scale ? print(*scale, names) : "-";
}

// Adds an op without operands and with one result of that name.
InstId add_op(Builder &builder, const char *name, uint64_t origin) {
  Inst inst;
  inst.op = OpNameId{builder.string("op").index};
  inst.attrs = builder.program.no_attrs();
  inst.operands = builder.program.no_operands();
  inst.context = ContextId{0};
  Value value;
  value.name = make_name(name, builder.program.strings);
  inst.first_result = *builder.define(value);
  inst.result_count = 1;
  return InstId{builder.add(inst, origin)};
}

} // namespace

TEST_CASE("equal values get equal ids, and ids stay") {
  StringTable strings;
  std::vector<StringId> ids;
  for (int i = 0; i < 5000; ++i)
    ids.push_back(strings.add("name" + std::to_string(i)));
  for (int i = 0; i < 5000; ++i) {
    CHECK(strings.add("name" + std::to_string(i)) == ids[i]);
    CHECK(strings[ids[i]] == "name" + std::to_string(i));
  }
  CHECK(strings.add("") == strings.add(llvm::StringRef()));
}

TEST_CASE("lists stand one behind the other, the empty one first") {
  ListStore<OperandsId, Operand> blocks;
  OperandsId empty = blocks.add({});
  OperandsId pair = blocks.add({Operand::literal(1), Operand::literal(2)});
  CHECK(blocks[blocks.add({Operand::literal(3)})][0] == Operand::literal(3));
  CHECK(blocks.add({}) == empty);
  CHECK(blocks[empty].empty());
  CHECK(blocks[pair][1] == Operand::literal(2));
}

TEST_CASE("a store appends whole vectors and knows when it is full") {
  Store<MeshId> meshes;
  std::vector<Mesh> two(2), many(0xFFFF - 2);
  two[1].offset = 7;
  meshes.append(std::move(two));
  CHECK(meshes[MeshId{1}].offset == 7);
  CHECK_FALSE(meshes.full());
  meshes.append(std::move(many));
  CHECK(meshes.full());
  CHECK(meshes[MeshId{1}].offset == 7);
}

TEST_CASE("a program starts with its defaults") {
  Program program;
  CHECK(program.scales[program.one()].is_one());
  CHECK(program.attrs[program.no_attrs()].attrs.empty());
  CHECK(program.operand_lists[program.no_operands()].empty());
  CHECK(program.contexts[ContextId{0}] == Context{});
  CHECK(program.attrs.add({}) == program.no_attrs());
}

TEST_CASE("names of values") {
  StringTable names;
  for (const char *text :
       {"0", "17", "2147483645", "2147483646", "4294967296", "007", "h", "a.b-c/1"})
    CHECK(print(make_name(text, names), names) == std::string("%") + text);
  CHECK(make_name("17", names).is_number());
  CHECK(make_name("2147483645", names).is_number());
  CHECK_FALSE(make_name("2147483646", names).is_number());
  CHECK_FALSE(make_name("007", names).is_number());
  CHECK_FALSE(make_name("", names).is_number());
}

TEST_CASE("scopes hold each name once, dense or far apart") {
  Program program;
  Builder builder(program);
  const char *const texts[] = {"0", "1", "1023", "2147483645", "5000", "x", "4000", "2", "5001"};
  for (const char *text : texts) {
    Value value;
    value.name = make_name(text, program.strings);
    CHECK_FALSE(builder.lookup(value.name));
    std::optional<ValueId> id = builder.define(value);
    REQUIRE(id);
    CHECK_FALSE(builder.define(value));
  }
  for (uint32_t i = 0; i < std::size(texts); ++i)
    CHECK(builder.lookup(make_name(texts[i], program.strings)) == std::optional(ValueId{i}));
  builder.open_body();
  CHECK_FALSE(builder.lookup(make_name("x", program.strings)));
  builder.close_body();
  CHECK(builder.lookup(make_name("x", program.strings)));
}

TEST_CASE("bodies are contiguous, and facts about ops move with them") {
  Program program;
  Builder builder(program);
  FunctionId f = builder.function("@f");
  CHECK(builder.function("@f") == f);
  CHECK_FALSE(builder.is_defined(f));
  add_op(builder, "a", 10);
  builder.ignore(0, builder.string("outer"));
  builder.open_body();
  add_op(builder, "a", 20);
  add_op(builder, "b", 21);
  builder.ignore(1, builder.string("inner"));
  builder.expect(1, {});
  CHECK(builder.body_size() == 2);
  CHECK(builder.depth() == 2);
  program.functions[f].body = builder.close_body();
  program.functions[f].results = program.no_operands();
  builder.mark_defined(f);
  CHECK(builder.is_defined(f));
  add_op(builder, "b", 11);
  builder.finish();

  CHECK(program.functions[f].body.first == InstId{0});
  CHECK(program.main.first == InstId{2});
  CHECK(program.main.last == InstId{4});
  CHECK(program.origins == std::vector<uint64_t>{20, 21, 10, 11});
  REQUIRE(program.ignores.size() == 2);
  CHECK(program.ignores[0].first == InstId{1});
  CHECK(program.ignores[1].first == InstId{2});
  CHECK(program.expectations[0].inst == InstId{1});
  CHECK(verify(program).empty());
}

TEST_CASE("extents fold, parse and print") {
  struct Row {
    const char *text, *printed; // `-`: no extent
  };
  const Row rows[] = {
      {"16", "16"},
      {" ( 2 + 3 ) * 4", "20"},
      {"s0", "s0"},
      {"(s0 / 8) * 8", "(s0 / 8) * 8"},
      {"s0 / 8 * 8", "(s0 / 8) * 8"},
      {"s0*2+s1*3", "s0 * 2 + s1 * 3"},
      {"a - (b - c)", "a - (b - c)"},
      {"a - b - c", "(a - b) - c"},
      {"a + b + c", "a + b + c"},
      {"a + (b + c)", "a + (b + c)"},
      {"(s0 + 1) * 2", "(s0 + 1) * 2"},
      {"7 / 2 + 7 % 4", "6"},
      {"((((s))))", "s"},
      {"9007199254740992", "9007199254740992"},
      {"9007199254740993", "-"},
      {"9007199254740992 * 2", "-"},
      {"3 - 4", "-"},
      {"s / 0", "-"},
      {"-1", "-"},
      {"", "-"},
      {"2 +", "-"},
      {"(2", "-"},
      {"2)", "-"},
      {"2 s", "-"},
      {"2s", "-"},
      {"1.5", "-"},
  };
  for (const Row &row : rows)
    CHECK(reprint_extent(row.text) == row.printed);
  CHECK(reprint_extent(std::string(100'000, '(')) == "-");
  std::string sum = "s";
  for (int i = 0; i < 100'000; ++i)
    sum += "+s";
  CHECK(reprint_extent(sum) == "-");
  CHECK(reprint_extent(llvm::StringRef("s\0", 2)) == "-");
}

TEST_CASE("random extents read back as themselves") {
  std::mt19937 random(5);
  ExprTable table;
  StringTable names;
  std::vector<Extent> pool = {Extent(3), Extent(8)};
  for (const char *name : {"s0", "s1"})
    pool.push_back(*parse_extent(name, table, names));
  for (int round = 0; round < 2000; ++round) {
    auto form = static_cast<Expr::Form>(1 + random() % 5);
    auto made = combine(table, form, pool[random() % pool.size()], pool[random() % pool.size()]);
    if (!made)
      continue;
    pool.push_back(*made);
    REQUIRE(parse_extent(print(*made, table, names), table, names) == made);
  }
}

TEST_CASE("counts of elements and bytes") {
  ExprTable table;
  StringTable names;
  Extent symbol = *parse_extent("s", table, names);
  int64_t big = int64_t(1) << 40;
  CHECK(element_count({DType::F32, true, {8, 16}}) == 128);
  CHECK(element_count({DType::F32, true, {}}) == 1);
  CHECK(byte_count({DType::BF16, true, {8, 16}}) == 256);
  CHECK(element_count({DType::F32, true, {big, big, 0}}) == 0);
  CHECK_FALSE(element_count({DType::F32, true, {big, big}}));
  CHECK_FALSE(element_count({DType::F32, true, {8, symbol}}));
  CHECK_FALSE(element_count({DType::F32, false, {}}));
  CHECK_FALSE(byte_count({DType::Unknown, true, {8}}));
  CHECK_FALSE(byte_count({DType::F64, true, {int64_t(1) << 60}}));
  for (const DTypeInfo &row : kDTypes)
    CHECK(parse_dtype(row.word) == row.dtype);
  CHECK(parse_dtype("float32") == DType::Unknown);
}

TEST_CASE("scales are canonical") {
  struct Row {
    const char *text, *printed; // `-`: no scale
  };
  const Row rows[] = {
      {"1", "1"},
      {"dp", "dp"},
      {"1/(dp*cp)", "1/(cp*dp)"},
      {"1 / dp / cp", "1/(cp*dp)"},
      {"2*steps/dp", "2*steps/dp"},
      {"6/4", "3/2"},
      {"dp/dp", "1"},
      {"dp*tp*dp", "dp*dp*tp"},
      {"dp/(tp/cp)", "cp*dp/tp"},
      {"4*dp/(2*dp*tp*tp)", "2/(tp*tp)"},
      {"dp/(2*cp)", "dp/(2*cp)"},
      {"0", "-"},
      {"1/0", "-"},
      {"", "-"},
      {"dp*", "-"},
      {"dp+1", "-"},
      {"-1", "-"},
      {"(dp", "-"},
      {"9007199254740992*2", "-"},
  };
  for (const Row &row : rows) {
    CHECK(reprint_scale(row.text) == row.printed);
    if (row.printed[0] != '-')
      CHECK(reprint_scale(row.printed) == row.printed);
  }
}

TEST_CASE("a scale times its inverse is one, and overflow is none") {
  StringTable names;
  for (const char *text : {"1", "dp", "3*dp/(2*tp*tp)", "1/(5*steps)"}) {
    Scale scale = *parse_scale(text, names);
    CHECK(multiply(scale, *inverse(scale), names)->is_one());
  }
  Scale power = *parse_scale("3*dp", names), number = *parse_scale("9007199254740992", names);
  CHECK_FALSE(multiply(number, number, names));
  CHECK(multiply(number, *inverse(number), names)->is_one());
  std::optional<Scale> squared = power;
  for (int i = 0; i < 40 && squared; ++i)
    squared = multiply(*squared, *squared, names);
  CHECK_FALSE(squared);
}

TEST_CASE("kinds as written") {
  for (const char *text : {"R", "Reduced", "I", "V", "P", "R|I", "?", "S(0)", "S(-1)", "P(avg)",
                           "P(max)", "P(min)", "P(prod)", "P(and)", "P(or)", "P(xor)"}) {
    std::optional<WrittenKind> word = parse_kind(text);
    REQUIRE(word);
    CHECK(print(*word) == text);
    CHECK(AttrValue::kind(*word).as_kind() == *word);
  }
  CHECK(parse_kind("P(sum)") == parse_kind("P"));
  for (const char *text :
       {"", "r", "I|R", "S", "S()", "S(x)", "S(1", "S(300)", "P()", "P(sum", "PP", "R ", "V(1)"})
    CHECK_FALSE(parse_kind(text));
}

TEST_CASE("attributes are sorted: known keys in table order, then by name") {
  Program program;
  Builder builder(program);
  auto dict = [&](std::vector<const char *> keys) {
    AttrDict made;
    for (const char *key : keys)
      made.attrs.push_back({builder.string(key), AttrValue::integer(1)});
    return builder.attrs(std::move(made));
  };
  AttrsId id = dict({"zeta", "dst", "alpha", "axis", "src"});
  std::vector<std::string> order;
  for (const Attr &attr : program.attrs[id].attrs)
    order.push_back(program.strings[attr.key].str());
  CHECK(order == std::vector<std::string>{"axis", "src", "dst", "alpha", "zeta"});
  CHECK(dict({"src", "axis", "alpha", "zeta", "dst"}) == id);
  CHECK(program.find(id, "alpha")->as_integer() == 1);
  CHECK(program.find(id, "beta") == nullptr);
  CHECK(known_key("axis") == 0u);
  CHECK_FALSE(known_key("axi"));
}
